import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * Flink, in a single process, with checkpoints: a counter for each value that GRR may report, as keyed state.
 *
 * Arguments as in KafkaStreamsPeer; the fifth is the milliseconds between checkpoints, the sixth their folder. Writes
 * JSON lines on stdout at its beginning and after its last checkpoint, with the counts of its final state.
 */
public final class FlinkPeer {
    private static long[] counts;

    private static final class Index implements KafkaRecordDeserializationSchema<Integer> {
        private final long begin;

        Index(long begin) {
            this.begin = begin;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Integer> out) {
            if (record.offset() == begin) {
                System.out.println("{\"begin\": " + begin + "}");
            }
            byte[] frame = record.value();
            out.collect((frame[5] & 0xff) | (frame[6] & 0xff) << 8);
        }

        @Override
        public TypeInformation<Integer> getProducedType() {
            return Types.INT;
        }
    }

    private static final class Counter extends KeyedProcessFunction<Integer, Integer, Integer> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Integer index, Context context, Collector<Integer> out) throws Exception {
            Long before = count.value();
            if (before == null) {
                context.timerService().registerEventTimeTimer(Long.MAX_VALUE); // when the input is over
            }
            count.update(before == null ? 1L : before + 1L);
        }

        @Override
        public void onTimer(long at, OnTimerContext context, Collector<Integer> out) throws Exception {
            counts[context.getCurrentKey()] = count.value();
        }
    }

    public static void main(String[] arguments) throws Exception {
        counts = new long[Integer.parseInt(arguments[6])];
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.dir", "file://" + arguments[5]);
        settings.setString("state.backend.type", "hashmap");
        settings.setString("rest.bind-port", "0");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        environment.enableCheckpointing(Long.parseLong(arguments[4]), CheckpointingMode.EXACTLY_ONCE);
        environment.getConfig().enableObjectReuse();
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        KafkaSource<Integer> source =
                KafkaSource.<Integer>builder()
                        .setBootstrapServers(arguments[0])
                        .setTopics(arguments[1])
                        .setGroupId(arguments[1] + "-flink")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setBounded(OffsetsInitializer.offsets(Map.of(partition, Long.parseLong(arguments[3]))))
                        .setDeserializer(new Index(Long.parseLong(arguments[2])))
                        .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "reports")
                .keyBy(index -> index, Types.INT)
                .process(new Counter())
                .sinkTo(new DiscardingSink<>());
        environment.execute();
        StringBuilder line = new StringBuilder("{\"end\": true, \"counts\": [");
        for (int i = 0; i < counts.length; i++) {
            line.append(i == 0 ? "" : ", ").append(counts[i]);
        }
        System.out.println(line.append("]}"));
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    private FlinkPeer() {}
}
