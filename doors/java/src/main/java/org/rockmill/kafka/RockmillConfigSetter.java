package org.rockmill.kafka;

import java.lang.System.Logger.Level;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.streams.state.RocksDBConfigSetter;
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
 */
public final class RockmillConfigSetter implements RocksDBConfigSetter {
  private static final String PREFIX = "rockmill.";
  private static final String DELEGATE = "rockmill.config.setter";
  private static final System.Logger LOGGER = System.getLogger("org.rockmill");

  /** Reasons that were said. */
  private static final Map<String, Boolean> SAID = new ConcurrentHashMap<>();

  private RocksDBConfigSetter delegate;

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
    } catch (RockmillException | LinkageError error) {
      String why = error instanceof RockmillException ? error.getMessage() : error.toString();
      if (SAID.putIfAbsent(why, true) == null) {
        LOGGER.log(Level.WARNING, "stores go on without Rockmill: " + why);
      }
    }
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
    if (delegate != null) delegate.close(storeName, options);
  }

  private static RocksDBConfigSetter delegate(Object given) {
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
  private static DBOptions adapted(Options options) {
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
