import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.rockmill.flink.RockmillMetrics;

/**
 * A job of Flink keeps the greatest number of each key in RocksDB, and Rockmill compacts its state. In a cluster, the settings
 * are lines of {@code config.yaml}, and {@code rockmill.jar} lies in {@code lib/}.
 *
 * <pre>
 * java -cp 'flink-clients, flink-statebackend-rocksdb and what they need:rockmill.jar:.' Greatest 1000000
 * </pre>
 */
public final class Greatest {
  private static final long KEYS = 1000;

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    configuration.setString("state.backend.type", "rocksdb");
    // These are all that Rockmill needs.
    configuration.setString("state.backend.rocksdb.options-factory", "org.rockmill.flink.RockmillOptionsFactory");
    configuration.setString("rockmill.device", "auto");
    configuration.setString("rockmill.memory_budget_bytes", "268435456");
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
    GeneratorFunction<Long, Long> numbers = index -> index;
    environment
        .fromSource(
            new DataGeneratorSource<>(numbers, Long.parseLong(arguments[0]), Types.LONG),
            WatermarkStrategy.noWatermarks(),
            "numbers")
        .keyBy(number -> number % KEYS)
        .process(new Keep())
        .filter(text -> text.startsWith("7:"))
        .print();
    environment.execute();
  }

  private static final class Keep extends KeyedProcessFunction<Long, Long, String> {
    private static final long serialVersionUID = 1;

    private transient ValueState<Long> greatest;

    @Override
    public void open(OpenContext context) throws Exception {
      greatest = getRuntimeContext().getState(new ValueStateDescriptor<>("greatest", Long.class));
      // Rockmill's counters are then among Flink's metrics.
      RockmillMetrics.register(getRuntimeContext().getMetricGroup());
    }

    @Override
    public void processElement(Long number, Context context, Collector<String> out) throws Exception {
      Long known = greatest.value();
      if (known == null) context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
      if (known == null || known < number) greatest.update(number);
    }

    @Override
    public void onTimer(long time, OnTimerContext context, Collector<String> out) throws Exception {
      out.collect(context.getCurrentKey() + ": " + greatest.value());
    }
  }
}
