// Java's share consumer reads records: the counterpart of ours in benchmarks/share_groups.py.
//
// The arguments are servers, topic, group and the number of records. Prints the seconds from the constructor to the
// first record, to the last commit, and the CPU seconds of the process meanwhile.

import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;

public class ReadShareGroup {
    public static void main(String[] arguments) {
        int warmUp = Integer.parseInt(arguments[3]) / 10;
        read(arguments, arguments[2] + "-warm-up", warmUp);
        System.out.println(read(arguments, arguments[2], Integer.parseInt(arguments[3])));
    }

    static String read(String[] arguments, String group, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", group);
        for (String part : new String[] {"key", "value"})
            settings.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        double began = System.nanoTime() / 1e9, cpu = cpu(), first = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            for (int read = 0; read < count;) {
                int found = consumer.poll(Duration.ofSeconds(1)).count();
                if (read == 0 && found > 0)
                    first = System.nanoTime() / 1e9;
                read += found;
            }
            consumer.commitSync();
            double ended = System.nanoTime() / 1e9;
            return String.format(Locale.ROOT, "{\"first\": %f, \"all\": %f, \"cpu\": %f}",
                first - began, ended - began, cpu() - cpu);
        }
    }

    static double cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}
