import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Kafka Streams with exactly_once_v2: a counter for each value that GRR may report, in its usual store behind its cache.
 *
 * Arguments: address, topic, begin and records (the measured offsets), commit milliseconds, folder for the state,
 * number of counters. Writes JSON lines on stdout at its beginning and after its last commit, with the counts of its
 * store.
 */
public final class KafkaStreamsPeer {
    private static final CountDownLatch THROUGH = new CountDownLatch(1);

    private static final class Counter implements Processor<byte[], byte[], Void, Void> {
        private final long begin;
        private final long records;
        private ProcessorContext<Void, Void> context;
        private KeyValueStore<Integer, Long> counts;

        Counter(long begin, long records) {
            this.begin = begin;
            this.records = records;
        }

        @Override
        public void init(ProcessorContext<Void, Void> context) {
            this.context = context;
            this.counts = context.getStateStore("counts");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            long offset = context.recordMetadata().orElseThrow().offset();
            if (offset >= records) {
                return;
            }
            if (offset == begin) {
                System.out.println("{\"begin\": " + begin + "}");
            }
            byte[] frame = record.value();
            int index = (frame[5] & 0xff) | (frame[6] & 0xff) << 8;
            Long before = counts.get(index);
            counts.put(index, before == null ? 1L : before + 1L);
            if (offset == records - 1) {
                context.commit();
                THROUGH.countDown();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        long begin = Long.parseLong(arguments[2]);
        long records = Long.parseLong(arguments[3]);
        int size = Integer.parseInt(arguments[6]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, topic + "-streams");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, Long.parseLong(arguments[4]));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(arguments[5]).toString());
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
                Stores.keyValueStoreBuilder(
                                Stores.persistentKeyValueStore("counts"), Serdes.Integer(), Serdes.Long())
                        .withCachingEnabled());
        builder.stream(topic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .process(() -> new Counter(begin, records), "counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        THROUGH.await();
        Map<String, Object> where = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(where)) {
            while (committed(admin, topic) < records) {
                Thread.sleep(50);
            }
        }
        ReadOnlyKeyValueStore<Integer, Long> counts =
                streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
        StringBuilder line = new StringBuilder("{\"end\": true, \"counts\": [");
        for (int i = 0; i < size; i++) {
            Long count = counts.get(i);
            line.append(i == 0 ? "" : ", ").append(count == null ? 0 : count);
        }
        System.out.println(line.append("]}"));
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    private static long committed(Admin admin, String topic) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets =
                admin.listConsumerGroupOffsets(topic + "-streams").partitionsToOffsetAndMetadata().get();
        OffsetAndMetadata offset = offsets.get(new TopicPartition(topic, 0));
        return offset == null ? 0 : offset.offset();
    }

    private KafkaStreamsPeer() {}
}
