// Fills the column "java" of avro_table.json: the bytes that Confluent's KafkaAvroSerializer writes for a value, or the
// class of its exception. It does what AbstractKafkaAvroSerializer.serializeImpl does after the id: a schema of bytes
// is written raw, anything else with Avro's GenericDatumWriter and the converters of AvroSchemaUtils.
//
//     java -cp 'pyspark/jars/*' AvroTable.java < avro_table.json > avro_table.new
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;

public class AvroTable {
  static final GenericData DATA = new GenericData();

  static {
    DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
    DATA.addLogicalTypeConversion(new Conversions.UUIDConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
  }

  /** The object of Java for a value such as {"long": 5}. */
  static Object value(Schema schema, JsonNode tagged) {
    String tag = tagged.fieldNames().next();
    JsonNode content = tagged.get(tag);
    switch (tag) {
      case "null": return null;
      case "bool": return content.asBoolean();
      case "int": return content.intValue();
      case "long": return content.longValue();
      case "double": return content.isTextual() ? Double.valueOf(content.asText()) : content.doubleValue();
      case "string": return content.asText();
      case "bytes": return ByteBuffer.wrap(HexFormat.of().parseHex(content.asText()));
      case "fixed": return new GenericData.Fixed(schema, HexFormat.of().parseHex(content.asText()));
      case "enum": return new GenericData.EnumSymbol(schema, content.asText());
      case "decimal": return new BigDecimal(content.asText());
      case "uuid": return UUID.fromString(content.asText());
      case "date": return LocalDate.parse(content.asText());
      case "time": return LocalTime.parse(content.asText());
      case "instant": return Instant.parse(content.asText());
      case "local": return LocalDateTime.parse(content.asText());
      case "list": {
        List<Object> list = new ArrayList<>();
        for (JsonNode item : content) list.add(value(schema.getElementType(), item));
        return list;
      }
      case "map": {
        Map<String, Object> map = new LinkedHashMap<>();
        content.fields().forEachRemaining(e -> map.put(e.getKey(), value(schema.getValueType(), e.getValue())));
        return map;
      }
      case "record": {
        GenericData.Record record = new GenericData.Record(schema);
        content.fields().forEachRemaining(e -> {
          Schema.Field field = schema.getField(e.getKey());
          record.put(e.getKey(), value(field == null ? null : field.schema(), e.getValue()));
        });
        return record;
      }
      default: throw new IllegalStateException(tag);
    }
  }

  static String write(JsonNode row) {
    try {
      Schema schema = new Schema.Parser().parse(row.get("schema").toString());
      Object value = value(schema, row.get("value"));
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      if (schema.getType() == Schema.Type.BYTES) {
        if (!(value instanceof ByteBuffer)) {
          throw new ClassCastException("Unrecognized bytes object");
        }
        out.write(((ByteBuffer) value).array());
      } else {
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<Object>(schema, DATA).write(value, encoder);
        encoder.flush();
      }
      return HexFormat.of().formatHex(out.toByteArray());
    } catch (IllegalStateException error) {
      throw error;
    } catch (Throwable error) {
      return error.getClass().getSimpleName();
    }
  }

  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    ArrayNode rows = (ArrayNode) mapper.readTree(System.in);
    StringBuilder out = new StringBuilder("[\n");
    for (JsonNode row : rows) {
      ((ObjectNode) row).put("java", write(row));
      out.append(out.length() > 2 ? ",\n" : "").append("  ").append(mapper.writeValueAsString(row));
    }
    System.out.println(out.append("\n]"));
  }
}
