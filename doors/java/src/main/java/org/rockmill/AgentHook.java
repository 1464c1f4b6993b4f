package org.rockmill;

import java.lang.System.Logger.Level;
import java.lang.reflect.Field;
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The code that the agent runs before a database is opened. It is public for the code that the agent adds to {@code
 * org.rocksdb}, and is not an interface for programs.
 *
 * <p>It knows options by reflection alone: RocksJava may be in a class loader that this class does not see.
 */
public final class AgentHook {
  /** Options that were seen. */
  private static final Set<Object> SEEN = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  private static String settings = "";
  private static long service;
  private static boolean isRefused;

  private AgentHook() {}

  /**
   * Sets the settings of the service that is opened with the first database.
   *
   * @param given as for {@link Rockmill.Builder#set(String)}
   */
  public static synchronized void configure(String given) {
    settings = given;
  }

  /**
   * Attaches the service to options, if they have none. It throws nothing: a program goes on without Rockmill, and the
   * reason is said once.
   *
   * @param options {@code Options} or {@code DBOptions} of some RocksJava
   */
  public static void beforeOpen(@Nullable Object options) {
    try {
      // Databases that are opened with the same options share a clone.
      if (options == null || !SEEN.add(options)) return;
      Class<?> type = options.getClass();
      // RocksJava says it of closed options itself.
      if (!(Boolean) type.getMethod("isOwningHandle").invoke(options)) return;
      long opened = service();
      if (opened == 0) return;
      long handle = (Long) type.getMethod("getNativeHandle").invoke(options);
      Class<?> rocksdb = Class.forName("org.rocksdb.RocksDB", true, type.getClassLoader());
      String version = rocksdb.getMethod("rocksdbVersion").invoke(null).toString();
      Loader.attach(opened, options, handle, version);
    } catch (Throwable error) {
      // The program has attached Rockmill itself, maybe another copy of it.
      if (!Loader.ALREADY.equals(error.getMessage())) say(error);
    }
  }

  /**
   * Returns the running compactions of a database to RocksDB, so that its close does not wait for them. RocksJava before
   * 9.11 does not say that a database closes.
   *
   * @param database a {@code RocksDB} of some RocksJava
   */
  public static void beforeClose(Object database) {
    try {
      for (Class<?> type = database.getClass(); type != null; type = type.getSuperclass()) {
        if (!type.getName().equals("org.rocksdb.RocksDB")) continue;
        // RocksJava keeps the options of a database there.
        Field field = type.getDeclaredField("options_");
        field.setAccessible(true);
        long clone = Loader.cloneOf(field.get(database));
        if (clone != 0) Native.cancelJobs(clone);
      }
    } catch (Throwable error) {
      say(error);
    }
  }

  private static synchronized long service() {
    if (service != 0 || isRefused) return service;
    // It is tried once.
    isRefused = true;
    String unsupported = Loader.unsupported();
    if (unsupported != null) throw new RockmillException(unsupported);
    Loader.load();
    Settings read = new Settings();
    read.setAll(settings);
    service = Native.open(read.text());
    isRefused = false;
    Bean.register(() -> new RockmillStats(Native.stats(service)));
    return service;
  }

  /**
   * Says once why databases go on without Rockmill.
   *
   * @param error the reason
   */
  public static void say(Throwable error) {
    String what = error instanceof RockmillException ? error.getMessage() : error.toString();
    if (SAID.add(String.valueOf(what))) {
      System.getLogger("org.rockmill").log(Level.WARNING, "RocksDB goes on without Rockmill: " + what);
    }
  }

  /** Returns the work done so far as JSON, or null if no database was attached. */
  public static synchronized @Nullable String stats() {
    return service == 0 ? null : Native.stats(service);
  }
}
