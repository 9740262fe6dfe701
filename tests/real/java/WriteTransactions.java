// Java's producer writes the transactions that test_reading_transactions.py reads.
//
// Two producers in turn, each with committed and aborted transactions that overlap. The last transaction stays open:
// the process ends as if it were killed. The arguments are servers, topic, and the two transactional ids.

import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class WriteTransactions {
    static final int TURNS = 4, RECORDS = 5;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        KafkaProducer<String, String> first = producer(arguments[0], arguments[2]);
        KafkaProducer<String, String> second = producer(arguments[0], arguments[3]);
        for (int turn = 0; turn < TURNS; turn++) {
            boolean firstCommits = turn % 2 == 1;
            String name = "first " + turn + (firstCommits ? " committed" : " aborted");
            first.beginTransaction();
            second.beginTransaction();
            write(first, topic, name);
            write(second, topic, "second " + turn + (firstCommits ? " aborted" : " committed"));
            write(first, topic, name + " more");
            end(first, firstCommits);
            end(second, !firstCommits);
        }
        first.beginTransaction();
        write(first, topic, "first open");
        Runtime.getRuntime().halt(0);
    }

    static KafkaProducer<String, String> producer(String servers, String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", transactionalId);
        settings.put("transaction.timeout.ms", "600000");
        for (String part : new String[] {"key", "value"})
            settings.put(part + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    static void write(KafkaProducer<String, String> producer, String topic, String name) {
        for (int number = 0; number < RECORDS; number++)
            producer.send(new ProducerRecord<>(topic, 0, null, name + "-" + number));
        producer.flush();
    }

    static void end(KafkaProducer<String, String> producer, boolean commits) {
        if (commits)
            producer.commitTransaction();
        else
            producer.abortTransaction();
    }
}
