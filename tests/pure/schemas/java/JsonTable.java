// Fills two columns of json_table.json: "java" is the text that Confluent's KafkaJsonSchemaSerializer writes for a
// value (Jackson's, without a check of the schema, which is the default), or the class of its exception. "valid" is
// what its check with json.fail.invalid.schema=true says, which is Everit's.
//
//     java -cp 'jars/*' JsonTable.java < json_table.json > json_table.new
//
// The jars are com.github.erosb:everit-json-schema:1.14.6 and jackson-databind:2.18.2 with what they need.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.everit.json.schema.Schema;
import org.everit.json.schema.loader.SchemaLoader;
import org.json.JSONArray;
import org.json.JSONObject;

public class JsonTable {
  static Object value(JsonNode tagged) {
    String tag = tagged.fieldNames().next();
    JsonNode content = tagged.get(tag);
    switch (tag) {
      case "null": return null;
      case "bool": return content.asBoolean();
      case "int": return content.intValue();
      case "long": return content.longValue();
      case "big": return new BigInteger(content.asText());
      case "double": return content.isTextual() ? Double.valueOf(content.asText()) : content.doubleValue();
      case "string": return content.asText();
      case "bytes": return HexFormat.of().parseHex(content.asText());
      case "decimal": return new BigDecimal(content.asText());
      case "instant": return Instant.parse(content.asText());
      case "list": {
        List<Object> list = new ArrayList<>();
        for (JsonNode item : content) list.add(value(item));
        return list;
      }
      case "map": {
        Map<Object, Object> map = new LinkedHashMap<>();
        content.fields().forEachRemaining(e -> map.put(e.getKey(), value(e.getValue())));
        return map;
      }
      case "pairs": {
        Map<Object, Object> map = new LinkedHashMap<>();
        for (JsonNode pair : content) map.put(value(pair.get(0)), value(pair.get(1)));
        return map;
      }
      default: throw new IllegalStateException(tag);
    }
  }

  static Object everit(JsonNode node) {
    if (node.isObject()) return new JSONObject(node.toString());
    if (node.isArray()) return new JSONArray(node.toString());
    if (node.isNull()) return JSONObject.NULL;
    if (node.isNumber()) return node.numberValue();
    return node.isBoolean() ? (Object) node.asBoolean() : node.asText();
  }

  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    ArrayNode rows = (ArrayNode) mapper.readTree(System.in);
    StringBuilder out = new StringBuilder("[\n");
    for (JsonNode row : rows) {
      ObjectNode result = (ObjectNode) row;
      try {
        Object value = value(row.get("value"));
        result.put("java", mapper.writeValueAsString(value));
        Schema schema = SchemaLoader.builder().useDefaults(true).draftV7Support()
            .schemaJson(new JSONObject(row.get("schema").toString())).build().load().build();
        try {
          schema.validate(everit(mapper.valueToTree(value)));
          result.put("valid", true);
        } catch (org.everit.json.schema.ValidationException error) {
          result.put("valid", false);
        }
      } catch (IllegalStateException error) {
        throw error;
      } catch (Exception error) {
        result.put("java", error.getClass().getSimpleName());
        result.put("valid", false);
      }
      out.append(out.length() > 2 ? ",\n" : "").append("  ").append(mapper.writeValueAsString(row));
    }
    System.out.println(out.append("\n]"));
  }
}
