// Writes assignments.txt: what the assignors of Apache Kafka's group coordinator return for random groups.
//
//   java -cp "$KAFKA/libs/*" MakeAssignments.java > assignments.txt
//
// Each line: assignor | partitions of topics | subscriptions of members | earlier assignment | assignment. The
// subscription of a static member ends with its instance id.

import java.util.*;
import java.util.stream.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.*;
import org.apache.kafka.coordinator.group.assignor.*;
import org.apache.kafka.coordinator.group.modern.*;

public class MakeAssignments {
    static final int GROUPS = 60, CHANGES = 3;
    static final Random random = new Random(848);

    public static void main(String[] arguments) {
        for (ConsumerGroupPartitionAssignor assignor : List.of(new UniformAssignor(), new RangeAssignor()))
            for (int group = 0; group < GROUPS; group++) {
                boolean sameSubscriptions = group % 2 == 0, hasStaticMembers = group % 3 == 0;
                SortedMap<String, SortedMap<String, SortedSet<Integer>>> assignment = new TreeMap<>();
                for (int change = 0; change <= CHANGES; change++)
                    assignment = assign(assignor, sameSubscriptions, hasStaticMembers, assignment);
            }
    }

    static SortedMap<String, SortedMap<String, SortedSet<Integer>>> assign(
        ConsumerGroupPartitionAssignor assignor,
        boolean sameSubscriptions,
        boolean hasStaticMembers,
        SortedMap<String, SortedMap<String, SortedSet<Integer>>> last
    ) {
        SortedMap<String, Integer> topics = new TreeMap<>();
        for (String topic : List.of("A", "B", "C"))
            topics.put(topic, 1 + random.nextInt(6));
        SortedMap<String, SortedSet<String>> members = new TreeMap<>();
        SortedSet<String> all = someOf(topics.keySet());
        for (String member : someOf(List.of("a", "b", "c", "d", "e")))
            members.put(member, sameSubscriptions ? all : someOf(topics.keySet()));

        SortedMap<String, SortedMap<String, SortedSet<Integer>>> before = new TreeMap<>();
        SortedMap<String, String> instances = new TreeMap<>(hasStaticMembers ? Map.of("c", ":y", "e", ":x") : Map.of());
        SortedMap<String, MemberSubscriptionAndAssignmentImpl> specs = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        members.forEach((member, subscribed) -> {
            SortedMap<String, SortedSet<Integer>> owned = new TreeMap<>();
            Map<Uuid, Set<Integer>> byId = new TreeMap<>();
            last.getOrDefault(member, new TreeMap<>()).forEach((topic, numbers) -> {
                SortedSet<Integer> existing = numbers.headSet(topics.get(topic));
                if (!existing.isEmpty()) {
                    owned.put(topic, existing);
                    byId.put(id(topic), existing);
                    existing.forEach(each -> owners.computeIfAbsent(id(topic), key -> new HashMap<>()).put(each, member));
                }
            });
            before.put(member, owned);
            Set<Uuid> ids = subscribed.stream().map(MakeAssignments::id).collect(Collectors.toCollection(TreeSet::new));
            Assignment assigned = new Assignment(Collections.unmodifiableMap(byId));
            specs.put(member, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(instances.get(member)), ids, assigned));
        });
        boolean same = members.values().stream().distinct().count() == 1;
        SubscriptionType type = same ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupAssignment found = assignor.assign(new GroupSpecImpl(specs, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) { return topics.getOrDefault(name(topic), -1); }
            public Set<String> racksForPartition(Uuid topic, int partition) { return Set.of(); }
        });
        SortedMap<String, SortedMap<String, SortedSet<Integer>>> after = new TreeMap<>();
        for (String member : members.keySet()) {
            SortedMap<String, SortedSet<Integer>> owned = new TreeMap<>();
            MemberAssignment assigned = found.members().get(member);
            if (assigned != null)
                assigned.partitions().forEach((topic, numbers) -> owned.put(name(topic), new TreeSet<>(numbers)));
            after.put(member, owned);
        }
        System.out.println(String.join(" | ", assignor.name(), texts(topics, Object::toString),
            members.entrySet().stream().map(each -> each.getKey() + "=" + String.join("", each.getValue())
                + instances.getOrDefault(each.getKey(), "")).collect(Collectors.joining(" ")), texts(before, MakeAssignments::text), texts(after, MakeAssignments::text)));
        return after;
    }

    static SortedSet<String> someOf(Collection<String> names) {
        List<String> shuffled = new ArrayList<>(names);
        Collections.shuffle(shuffled, random);
        return new TreeSet<>(shuffled.subList(0, 1 + random.nextInt(shuffled.size())));
    }

    static Uuid id(String topic) { return new Uuid(0, topic.charAt(0)); }

    static String name(Uuid topic) { return String.valueOf((char) topic.getLeastSignificantBits()); }

    static <T> String texts(SortedMap<String, T> values, java.util.function.Function<T, String> text) {
        return values.entrySet().stream().map(each -> each.getKey() + "=" + text.apply(each.getValue())).collect(Collectors.joining(" "));
    }

    static String text(SortedMap<String, SortedSet<Integer>> owned) {
        return owned.entrySet().stream().flatMap(each -> each.getValue().stream().map(number -> each.getKey() + number)).collect(Collectors.joining(","));
    }
}
