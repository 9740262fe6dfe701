// A candidate of make bench by Java's client, in a process of its own: the counterpart of benchmarks/worker.py.
//
// The arguments are the fields of Job in job.py, as name=value. The result is a line of JSON. The work is done twice,
// and the second time is measured: by then the virtual machine has compiled the code. A start is measured as it is.

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

public class Worker {
    static final int BATCH = 1 << 20, WARM_UP = 50, WARM_UP_OF_COMMITS = 5, IDLE_SECONDS = 10;
    static final String BUFFER = String.valueOf(64 << 20), LINGER_MS = "5", HEARTBEAT_MS = "500", SESSION_MS = "10000";

    static final Map<String, String> job = new HashMap<>();
    static byte[][] values, keys;

    interface Work {
        Map<String, Double> run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] words = argument.split("=", 2);
            job.put(words[0], words[1]);
        }
        values = values();
        keys = new byte[1000][];
        for (int index = 0; index < keys.length; index++)
            keys[index] = String.format("key-%05d", index).getBytes();
        Map<String, Work> all = Map.of("produce", Worker::produce, "consume", Worker::consume, "senders", Worker::senders,
            "transactions", Worker::transactions, "join", Worker::join, "idle", Worker::idle, "start", Worker::start);
        Work work = all.get(job.get("client"));
        if (!List.of("idle", "start").contains(job.get("client")))
            work.run();
        Map<String, Double> result = new HashMap<>(work.run());
        result.putIfAbsent("memory", status("VmHWM:"));
        List<String> fields = new ArrayList<>();
        result.forEach((name, value) -> fields.add(String.format(Locale.ROOT, "\"%s\": %.9f", name, value)));
        System.out.println("{" + String.join(", ", fields) + "}");
        System.exit(0);
    }

    static int number(String name) {
        return Integer.parseInt(job.get(name));
    }

    /** CPU seconds of this process, with all its threads. */
    static double cpu() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }

    /** Bytes of a line of /proc/self/status; 0 where there is none. */
    static double status(String name) {
        try {
            for (String line : Files.readAllLines(Path.of("/proc/self/status")))
                if (line.startsWith(name))
                    return Double.parseDouble(line.replaceAll("[^0-9]", "")) * 1024;
        } catch (IOException missing) {
            // Only Linux has this file.
        }
        return 0;
    }

    /** Bytes of the objects in use, and of what the virtual machine keeps for itself. */
    static double inUse() {
        System.gc();
        var memory = ManagementFactory.getMemoryMXBean();
        return memory.getHeapMemoryUsage().getUsed() + memory.getNonHeapMemoryUsage().getUsed();
    }

    static class Stopwatch {
        final long began = System.nanoTime();
        final double cpu = cpu();

        Map<String, Double> result() {
            Map<String, Double> result = new HashMap<>();
            result.put("wall", (System.nanoTime() - began) / 1e9);
            result.put("cpu", cpu() - cpu);
            return result;
        }

        Map<String, Double> result(double[] seconds) {
            Map<String, Double> result = result();
            Arrays.sort(seconds);
            result.put("p50", seconds[seconds.length / 2]);
            result.put("p99", seconds[Math.min(seconds.length - 1, seconds.length * 99 / 100)]);
            return result;
        }
    }

    /** Different values, about half of whose bytes are random; at most 32 MiB together. */
    static byte[][] values() {
        int size = number("size");
        Random source = new Random(7);
        byte[] word = "{\"order\": 12345, \"customer\": \"C-0042\", \"amount\": 99.50, \"currency\": \"EUR\"}".getBytes();
        byte[][] values = new byte[Math.max(1, Math.min(1000, Math.min(number("count"), (32 << 20) / size)))][size];
        for (byte[] value : values) {
            source.nextBytes(value);
            for (int index = 0; index < size - size / 2; index++)
                value[index] = word[index % word.length];
        }
        return values;
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", job.get("servers"));
        for (String part : new String[] {"key", "value"}) {
            settings.put(part + ".serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            settings.put(part + ".deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        }
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(String... more) {
        Properties settings = settings();
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("batch.size", String.valueOf(BATCH));
        settings.put("max.request.size", String.valueOf(BATCH + 12));
        settings.put("buffer.memory", BUFFER);
        settings.put("linger.ms", "0");
        settings.put("compression.type", job.get("compression"));
        for (int index = 0; index < more.length; index += 2)
            settings.put(more[index], more[index + 1]);
        return new KafkaProducer<>(settings);
    }

    static ProducerRecord<byte[], byte[]> record(int index) {
        byte[] key = job.get("keyed").equals("true") ? keys[index % keys.length] : null;
        return new ProducerRecord<>(job.get("topic"), key, values[index % values.length]);
    }

    static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    static Map<String, Double> produce() throws Exception {
        AtomicInteger delivered = new AtomicInteger();
        try (var producer = producer("linger.ms", LINGER_MS)) {
            producer.send(record(0)).get();
            Stopwatch watch = new Stopwatch();
            for (int index = 0; index < number("count"); index++)
                producer.send(record(index), (metadata, error) -> {
                    if (error != null)
                        fail(error);
                    delivered.incrementAndGet();
                });
            producer.flush();
            Map<String, Double> result = watch.result();
            if (delivered.get() != number("count"))
                throw new IllegalStateException(number("count") - delivered.get() + " records were not delivered");
            return result;
        }
    }

    static Map<String, Double> consume() {
        Properties settings = settings();
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            Stopwatch watch = new Stopwatch();
            List<TopicPartition> partitions = new ArrayList<>();
            for (int number = 0; number < number("partitions"); number++)
                partitions.add(new TopicPartition(job.get("topic"), number));
            consumer.assign(partitions);
            long bytes = 0;
            for (int left = number("count"); left > 0;)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(10))) {
                    bytes += record.value().length;
                    left--;
                }
            return watch.result();
        }
    }

    /** Threads that each wait for one send after the other. */
    static Map<String, Double> senders() throws Exception {
        int count = number("count"), senders = number("senders");
        double[] seconds = new double[count];
        try (var producer = producer()) {
            for (int index = 0; index < Math.min(WARM_UP, count); index++)
                producer.send(record(index)).get();
            Thread[] threads = new Thread[senders];
            Stopwatch watch = new Stopwatch();
            for (int first = 0; first < senders; first++) {
                int start = first;
                threads[first] = new Thread(() -> {
                    try {
                        for (int index = start; index < count; index += senders) {
                            long began = System.nanoTime();
                            producer.send(record(index)).get();
                            seconds[index] = (System.nanoTime() - began) / 1e9;
                        }
                    } catch (Exception error) {
                        fail(error);
                    }
                });
                threads[first].start();
            }
            for (Thread thread : threads)
                thread.join();
            return watch.result(seconds);
        }
    }

    static Map<String, Double> transactions() throws Exception {
        int records = number("records");
        double[] seconds = new double[number("count")];
        String linger = records > 1 ? LINGER_MS : "0";
        try (var producer = producer("transactional.id", UUID.randomUUID().toString(), "linger.ms", linger)) {
            producer.initTransactions();
            Stopwatch watch = null;
            for (int number = -WARM_UP_OF_COMMITS; number < seconds.length; number++) {
                if (number == 0)
                    watch = new Stopwatch();
                long began = System.nanoTime();
                producer.beginTransaction();
                for (int index = 0; index < records; index++)
                    producer.send(record(index));
                producer.commitTransaction();
                if (number >= 0)
                    seconds[number] = (System.nanoTime() - began) / 1e9;
            }
            return watch.result(seconds);
        }
    }

    /** A member that is complete when it owns its share of the partitions. */
    static class Member extends Thread implements ConsumerRebalanceListener {
        final String group;
        final int share;
        final CountDownLatch complete;
        volatile KafkaConsumer<byte[], byte[]> consumer;
        int owned = 0;
        boolean wasComplete = false;

        Member(String group, int share, CountDownLatch complete) {
            this.group = group;
            this.share = share;
            this.complete = complete;
        }

        public void run() {
            Properties settings = settings();
            settings.put("group.id", group);
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("heartbeat.interval.ms", HEARTBEAT_MS);
            settings.put("session.timeout.ms", SESSION_MS);
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
            consumer = new KafkaConsumer<>(settings);
            consumer.subscribe(List.of(job.get("topic")), this);
            try {
                while (true)
                    consumer.poll(Duration.ofMillis(200));
            } catch (WakeupException closing) {
                consumer.close();
            }
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned += partitions.size();
            if (owned == share && !wasComplete) {
                wasComplete = true;
                complete.countDown();
            }
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned -= partitions.size();
        }
    }

    static Map<String, Double> join() throws Exception {
        double[] seconds = new double[number("count")];
        double wall = 0, cpu = 0;
        for (int number = 0; number < seconds.length; number++) {
            Map<String, Double> once = joinOnce();
            seconds[number] = once.get("wall");
            wall += once.get("wall");
            cpu += once.get("cpu");
        }
        Map<String, Double> result = new Stopwatch().result(seconds);
        result.put("wall", wall);
        result.put("cpu", cpu);
        return result;
    }

    static Map<String, Double> joinOnce() throws Exception {
        String group = UUID.randomUUID().toString();
        int count = number("senders");
        CountDownLatch complete = new CountDownLatch(count);
        List<Member> members = new ArrayList<>();
        Stopwatch watch = new Stopwatch();
        for (int number = 0; number < count; number++) {
            members.add(new Member(group, number("partitions") / count, complete));
            members.get(number).start();
        }
        complete.await();
        Map<String, Double> result = watch.result();
        for (Member member : members)
            member.consumer.wakeup();
        for (Member member : members)
            member.join();
        return result;
    }

    /**
     * Producers that have sent one record each, and then nothing. CPU and memory are those of all but the first. Memory
     * is that of objects in use: the size of the process depends on when the heap was last collected.
     */
    static Map<String, Double> idle() throws Exception {
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        double before = 0;
        for (int number = 0; number <= number("count"); number++) {
            producers.add(producer());
            producers.get(number).send(record(0)).get();
            if (number == 0)
                before = inUse();
        }
        double after = inUse();
        Thread.sleep(1000);
        Stopwatch watch = new Stopwatch();
        Thread.sleep(IDLE_SECONDS * 1000);
        Map<String, Double> result = watch.result();
        result.put("memory", after - before);
        for (var producer : producers)
            producer.close();
        return result;
    }

    /** One record. The seconds are those since the process was started. */
    static Map<String, Double> start() throws Exception {
        try (var producer = producer()) {
            producer.send(record(0)).get();
            double now = System.currentTimeMillis() / 1e3;
            return Map.of("wall", now - Double.parseDouble(job.get("began")), "cpu", cpu());
        }
    }
}
