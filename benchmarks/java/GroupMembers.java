// Members of a group by Java's client: the counterpart of benchmarks/group_members.py, which has the protocol.
//
// The arguments are the protocol of the group, servers, topic and group.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

public class GroupMembers {
    static final String HEARTBEAT_MS = "1000", SESSION_MS = "3000";
    static int owned = 0;

    static synchronized void say(String facts) {
        System.out.println("{" + facts + "}");
        System.out.flush();
    }

    static synchronized void own(int count) {
        owned += count;
        say("\"owned\": " + owned);
    }

    static class Member extends Thread implements ConsumerRebalanceListener {
        final Properties settings = new Properties();
        final String topic;
        final long began = System.nanoTime();
        volatile KafkaConsumer<byte[], byte[]> consumer;

        Member(String[] arguments) {
            settings.put("group.protocol", arguments[0]);
            settings.put("bootstrap.servers", arguments[1]);
            settings.put("group.id", arguments[3]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            if (arguments[0].equals("classic")) {
                settings.put("session.timeout.ms", SESSION_MS);
                settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
            }
            for (String part : new String[] {"key", "value"})
                settings.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
            topic = arguments[2];
            setDaemon(true);
        }

        public void run() {
            consumer = new KafkaConsumer<>(settings);
            consumer.subscribe(List.of(topic), this);
            try {
                while (consumer.poll(Duration.ofSeconds(1)).isEmpty());
                say("\"first\": " + (System.nanoTime() - began) / 1e9);
                while (true)
                    consumer.poll(Duration.ofSeconds(1));
            } catch (WakeupException closing) {
                say("\"leaving\": 1");
                consumer.close();
            }
        }

        double heartbeats() {
            return consumer.metrics().entrySet().stream()
                .filter(each -> each.getKey().name().equals("heartbeat-total"))
                .mapToDouble(each -> (Double) each.getValue().metricValue()).sum();
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            own(partitions.size());
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            own(-partitions.size());
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Member> members = new ArrayList<>();
        List<Member> left = new ArrayList<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null;) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "join":
                    for (int number = 0; number < Integer.parseInt(words[1]); number++) {
                        members.add(new Member(arguments));
                        members.get(members.size() - 1).start();
                    }
                    break;
                case "leave":
                    for (int number = 0; number < Integer.parseInt(words[1]); number++) {
                        left.add(members.remove(members.size() - 1));
                        left.get(left.size() - 1).consumer.wakeup();
                    }
                    break;
                case "counts":
                    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
                    say("\"heartbeats\": " + members.stream().mapToDouble(Member::heartbeats).sum()
                        + ", \"cpu\": " + system.getProcessCpuTime() / 1e9);
            }
        }
        for (Member each : members)
            each.consumer.wakeup();
        left.addAll(members);
        for (Member each : left)
            each.join(20_000);
    }
}
