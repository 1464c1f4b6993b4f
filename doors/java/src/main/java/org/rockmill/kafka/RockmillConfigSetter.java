package org.rockmill.kafka;

import java.lang.System.Logger.Level;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
import org.jspecify.annotations.Nullable;
import org.rocksdb.DBOptions;
import org.rocksdb.Options;
import org.rockmill.Rockmill;
import org.rockmill.RockmillException;

/**
 * Has the stores of Kafka Streams compacted by Rockmill.
 *
 * <pre>
 * rocksdb.config.setter=org.rockmill.kafka.RockmillConfigSetter
 * rockmill.device=auto
 * rockmill.config.setter=com.example.MySetter
 * </pre>
 *
 * <p>Each {@code rockmill.NAME} is a setting of the service, which all stores of the process share. {@code
 * rockmill.config.setter} names the program's own setter, which is called first. If Rockmill cannot be used, one warning
 * says why, and the stores go on without it.
 *
 * <p>The reporters of {@code metric.reporters} get the counters of the service: in JMX they are {@code
 * kafka.streams:type=rockmill-metrics,application-id=ID}.
 */
public final class RockmillConfigSetter implements RocksDBConfigSetter {
  private static final String PREFIX = "rockmill.";
  private static final String DELEGATE = "rockmill.config.setter";
  private static final System.Logger LOGGER = System.getLogger("org.rockmill");

  /** Reasons that were said. */
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
      DBOptions own = adapted(options);
      if (own != null) {
        rockmill.attach(own);
      } else {
        rockmill.attach(options);
      }
      try {
        application = StoreMetrics.enter(configs, rockmill);
      } catch (RuntimeException | LinkageError error) {
        sayOnce("Kafka's metrics have no counters of Rockmill: " + error);
      }
    } catch (RockmillException | LinkageError error) {
      String why = error instanceof RockmillException ? error.getMessage() : error.toString();
      sayOnce("stores go on without Rockmill: " + why);
    }
  }

  private static void sayOnce(String what) {
    if (SAID.putIfAbsent(what, true) == null) LOGGER.log(Level.WARNING, what);
  }

  @Override
  public void close(String storeName, Options options) {
    // Kafka Streams calls this just before it closes the store.
    try {
      DBOptions own = adapted(options);
      if (own != null) {
        Rockmill.cancelJobs(own);
      } else {
        Rockmill.cancelJobs(options);
      }
    } catch (RockmillException | LinkageError error) {
      // Nothing was attached to such options.
    }
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

  /** Returns the options behind the adapter that Kafka Streams passes, whose own handle no database uses; else null. */
  private static @Nullable DBOptions adapted(Options options) {
    if (options.getClass() == Options.class) return null;
    try {
      Field field = options.getClass().getDeclaredField("dbOptions");
      field.setAccessible(true);
      return (DBOptions) field.get(options);
    } catch (ReflectiveOperationException | RuntimeException error) {
      throw new RockmillException("this Kafka Streams passes options of the unknown kind " + options.getClass().getName());
    }
  }
}
