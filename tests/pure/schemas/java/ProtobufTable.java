// Fills the column "java" of protobuf_table.json: the bytes of a message with one field, as protobuf-java's
// DynamicMessage writes it, which Confluent's KafkaProtobufSerializer appends to the id and the indexes as they are; or
// the class of the exception.
//
//     java -cp 'jars/*' ProtobufTable.java < protobuf_table.json > protobuf_table.new
//
// The jars are com.google.protobuf:protobuf-java:4.29.3 and jackson-databind:2.18.2 with what they need.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.EnumDescriptorProto;
import com.google.protobuf.DescriptorProtos.EnumValueDescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

public class ProtobufTable {
  static Descriptor message(String type, boolean repeated) throws Exception {
    FieldDescriptorProto.Builder field = FieldDescriptorProto.newBuilder().setName("f").setNumber(1)
        .setLabel(repeated ? FieldDescriptorProto.Label.LABEL_REPEATED : FieldDescriptorProto.Label.LABEL_OPTIONAL)
        .setType(FieldDescriptorProto.Type.valueOf("TYPE_" + type.toUpperCase()));
    if (type.equals("enum")) field.setTypeName(".acme.Kind");
    if (type.equals("message")) field.setTypeName(".acme.M");
    FileDescriptorProto file = FileDescriptorProto.newBuilder().setName("m.proto").setPackage("acme").setSyntax("proto3")
        .addMessageType(DescriptorProto.newBuilder().setName("M").addField(field))
        .addEnumType(EnumDescriptorProto.newBuilder().setName("Kind")
            .addValue(EnumValueDescriptorProto.newBuilder().setName("NONE").setNumber(0))
            .addValue(EnumValueDescriptorProto.newBuilder().setName("SOME").setNumber(1)))
        .build();
    return FileDescriptor.buildFrom(file, new FileDescriptor[0]).findMessageTypeByName("M");
  }

  static Object value(Descriptor descriptor, JsonNode tagged) throws Exception {
    FieldDescriptor field = descriptor.findFieldByName("f");
    String tag = tagged.fieldNames().next();
    JsonNode content = tagged.get(tag);
    switch (tag) {
      case "bool": return content.asBoolean();
      case "int": return content.intValue();
      case "uint": return (int) content.longValue();
      case "long": return content.longValue();
      case "ulong": return content.bigIntegerValue().longValue();
      case "float": return content.isTextual() ? Float.valueOf(content.asText()) : (float) content.doubleValue();
      case "double": return content.isTextual() ? Double.valueOf(content.asText()) : content.doubleValue();
      case "string": return content.asText();
      case "bytes": return ByteString.copyFrom(HexFormat.of().parseHex(content.asText()));
      case "enum": return field.getEnumType().findValueByNumberCreatingIfUnknown(content.intValue());
      case "message": return DynamicMessage.newBuilder(descriptor).build();
      case "list": {
        List<Object> list = new ArrayList<>();
        for (JsonNode item : content) list.add(value(descriptor, item));
        return list;
      }
      default: throw new IllegalStateException(tag);
    }
  }

  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    ArrayNode rows = (ArrayNode) mapper.readTree(System.in);
    StringBuilder out = new StringBuilder("[\n");
    for (JsonNode row : rows) {
      Descriptor descriptor = message(row.get("type").asText(), row.get("value").has("list"));
      String java;
      try {
        Object value = value(descriptor, row.get("value"));
        byte[] bytes = DynamicMessage.newBuilder(descriptor).setField(descriptor.findFieldByName("f"), value).build()
            .toByteArray();
        java = HexFormat.of().formatHex(bytes);
      } catch (RuntimeException error) {
        java = error.getClass().getSimpleName();
      }
      ((ObjectNode) row).put("java", java);
      out.append(out.length() > 2 ? ",\n" : "").append("  ").append(mapper.writeValueAsString(row));
    }
    System.out.println(out.append("\n]"));
  }
}
