package org.rockmill.kafka;

import java.lang.System.Logger.Level;
import java.lang.reflect.Field;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.jspecify.annotations.Nullable;
import org.rocksdb.ColumnFamilyDescriptor;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rockmill.Rockmill;
import org.rockmill.RockmillException;

/**
 * Lets Rockmill compact the stores of Kafka Streams.
 *
 * <pre>
 * rocksdb.config.setter=org.rockmill.kafka.RockmillConfigSetter
 * rockmill.device=auto
 * rockmill.config.setter=com.example.MySetter
 * </pre>
 *
 * <p>Each {@code rockmill.NAME} is a setting of the service, which all stores of the process share. {@code
 * rockmill.config.setter} names the program's own setter, which is called first. If Rockmill cannot be used, one
 * warning says why, and the stores continue without it.
 *
 * <p>The reporters of {@code metric.reporters} get the counters of the service: in JMX they are {@code
 * kafka.streams:type=rockmill-metrics,application-id=ID}.
 */
public final class RockmillConfigSetter implements RocksDBConfigSetter {
  private static final String PREFIX = "rockmill.";
  private static final String DELEGATE = "rockmill.config.setter";
  private static final System.Logger LOGGER = System.getLogger("org.rockmill");

  /** Reasons that were printed. */
  private static final Map<String, Boolean> SAID = new ConcurrentHashMap<>();

  private @Nullable RocksDBConfigSetter delegate;

  /** Null until the store is counted for its application's metrics. */
  private @Nullable String application;

  @Override
  public void setConfig(String storeName, Options options, Map<String, Object> configs) {
    delegate = delegate(configs.get(DELEGATE));
    if (delegate != null) delegate.setConfig(storeName, options, configs);
    Map<String, String> settings = new TreeMap<>();
    configs.forEach(
        (name, value) -> {
          if (name.startsWith(PREFIX) && !name.equals(DELEGATE)) {
            settings.put(name.substring(PREFIX.length()), String.valueOf(value));
          }
        });
    try {
      Rockmill rockmill = Rockmill.shared(settings);
      if (options.getClass() == Options.class) {
        rockmill.attach(options);
      } else {
        ColumnFamilyOptions family = (ColumnFamilyOptions) adapted(options, "columnFamilyOptions");
        rockmill.attach(
            (DBOptions) adapted(options, "dbOptions"),
            List.of(new ColumnFamilyDescriptor(RocksDB.DEFAULT_COLUMN_FAMILY, family)));
      }
      application = StoreMetrics.enter(configs, rockmill);
    } catch (RockmillException | LinkageError error) {
      String why = error instanceof RockmillException ? error.getMessage() : error.toString();
      sayOnce("stores go on without Rockmill: " + why);
    }
  }

  static void sayOnce(String what) {
    if (SAID.putIfAbsent(what, true) == null) LOGGER.log(Level.WARNING, what);
  }

  @Override
  public void close(String storeName, Options options) {
    if (application != null) StoreMetrics.leave(application);
    application = null;
    if (delegate != null) delegate.close(storeName, options);
  }

  private static @Nullable RocksDBConfigSetter delegate(@Nullable Object given) {
    if (given == null) return null;
    try {
      Class<?> type =
          given instanceof Class
              ? (Class<?>) given
              : Class.forName(given.toString(), true, Thread.currentThread().getContextClassLoader());
      return (RocksDBConfigSetter) type.getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException | ClassCastException error) {
      throw new RockmillException(DELEGATE + " is " + given + ", which is no RocksDBConfigSetter: " + error);
    }
  }

  /** Returns options behind the adapter that Kafka Streams passes, whose own handle no database uses. */
  private static Object adapted(Options options, String name) {
    try {
      Field field = options.getClass().getDeclaredField(name);
      field.setAccessible(true);
      return field.get(options);
    } catch (ReflectiveOperationException | RuntimeException error) {
      throw new RockmillException("this Kafka Streams passes options of the unknown kind " + options.getClass().getName());
    }
  }
}
