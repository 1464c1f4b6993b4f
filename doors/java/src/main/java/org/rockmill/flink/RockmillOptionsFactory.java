package org.rockmill.flink;

import java.lang.System.Logger.Level;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.state.rocksdb.ConfigurableRocksDBOptionsFactory;
import org.apache.flink.state.rocksdb.RocksDBOptionsFactory;
import org.jspecify.annotations.Nullable;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;
import org.rockmill.Rockmill;
import org.rockmill.RockmillException;
import org.rockmill.RockmillStats;

/**
 * Lets Rockmill compact the RocksDB state of Flink 2.
 *
 * <pre>
 * state.backend.rocksdb.options-factory: org.rockmill.flink.RockmillOptionsFactory
 * rockmill.device: auto
 * rockmill.options-factory: com.example.MyFactory
 * </pre>
 *
 * <p>Each {@code rockmill.NAME} is a setting of the service, which all subtasks of the process share. {@code
 * rockmill.options-factory} names the program's own factory, which is called first. If Rockmill cannot be used, one
 * warning says why, and the state continues without it.
 */
public final class RockmillOptionsFactory implements ConfigurableRocksDBOptionsFactory {
  private static final long serialVersionUID = 1;
  private static final String PREFIX = "rockmill.";
  private static final String DELEGATE = "rockmill.options-factory";
  private static final System.Logger LOGGER = System.getLogger("org.rockmill");

  /** Reasons that were printed. */
  private static final Map<String, Boolean> SAID = new ConcurrentHashMap<>();

  /** The service of this process; of the last settings, should jobs have several. */
  private static volatile @Nullable Rockmill last;

  private final HashMap<String, String> settings = new HashMap<>();
  private @Nullable RocksDBOptionsFactory delegate;

  static RockmillStats stats() {
    Rockmill known = last;
    return known == null ? RockmillStats.NONE : known.stats();
  }

  @Override
  public RocksDBOptionsFactory configure(ReadableConfig configuration) {
    Map<String, String> all =
        configuration instanceof Configuration ? ((Configuration) configuration).toMap() : new TreeMap<>();
    all.forEach(
        (name, value) -> {
          if (name.startsWith(PREFIX) && !name.equals(DELEGATE)) settings.put(name.substring(PREFIX.length()), value);
        });
    String given = all.get(DELEGATE);
    if (given != null) delegate = delegate(given, configuration);
    return this;
  }

  private static RocksDBOptionsFactory delegate(String given, ReadableConfig configuration) {
    try {
      Class<?> type = Class.forName(given, true, Thread.currentThread().getContextClassLoader());
      RocksDBOptionsFactory made = (RocksDBOptionsFactory) type.getDeclaredConstructor().newInstance();
      return made instanceof ConfigurableRocksDBOptionsFactory
          ? ((ConfigurableRocksDBOptionsFactory) made).configure(configuration)
          : made;
    } catch (ReflectiveOperationException | ClassCastException error) {
      throw new RockmillException(DELEGATE + " is " + given + ", which is no RocksDBOptionsFactory: " + error);
    }
  }

  @Override
  public DBOptions createDBOptions(DBOptions current, Collection<AutoCloseable> handlesToClose) {
    DBOptions options = delegate == null ? current : delegate.createDBOptions(current, handlesToClose);
    try {
      Rockmill rockmill = Rockmill.shared(settings);
      last = rockmill;
      rockmill.attach(options);
    } catch (RockmillException | LinkageError error) {
      sayOnce(error instanceof RockmillException ? error.getMessage() : error.toString());
    }
    return options;
  }

  private static void sayOnce(String why) {
    if (SAID.putIfAbsent(why, true) == null) LOGGER.log(Level.WARNING, "state goes on without Rockmill: " + why);
  }

  @Override
  public ColumnFamilyOptions createColumnOptions(
      ColumnFamilyOptions current, Collection<AutoCloseable> handlesToClose) {
    ColumnFamilyOptions options =
        delegate == null ? current : delegate.createColumnOptions(current, handlesToClose);
    Rockmill rockmill = last;
    if (rockmill != null && !options.cfPaths().isEmpty()) {
      // Flink makes column families after it has opened the database.
      rockmill.changeSettings(Map.of("paused", "true"));
      sayOnce("a column family has cf_paths, where RocksDB could not move a job's files; Rockmill stops until the process"
              + " ends");
    }
    return options;
  }
}
