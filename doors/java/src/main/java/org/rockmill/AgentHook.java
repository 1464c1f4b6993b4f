package org.rockmill;

import java.lang.System.Logger.Level;
import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import org.jspecify.annotations.Nullable;

/**
 * The code that the agent runs before a database is opened. It is public for the code that the agent adds to {@code
 * org.rocksdb}, and is not an interface for programs.
 */
public final class AgentHook {
  /** Options with the service, and copies that were made of them. */
  private static final Set<Object> SERVED = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));
  private static final Set<String> SAID = ConcurrentHashMap.newKeySet();

  private static String settings = "";
  private static long service;
  private static boolean isRefused;

  /** Whether {@link #SERVED} has all copies. */
  private static volatile boolean knowsCopies = true;

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
   * Attaches the service to options, if they have none. It throws nothing: a program continues without Rockmill, and
   * the reason is printed once.
   *
   * @param arguments of an {@code open} of some RocksJava: the first one are {@code Options} or {@code DBOptions}
   */
  public static void beforeOpen(@Nullable Object[] arguments) {
    try {
      Object options = arguments[0];
      if (options == null) return;
      List<?> families = List.of();
      String folder = null;
      for (Object argument : arguments) {
        if (folder == null && argument instanceof String) folder = (String) argument;
        if (argument instanceof List && !hasFamilies(families)) families = (List<?>) argument;
      }
      // RocksJava itself reports closed options.
      if (!(Boolean) options.getClass().getMethod("isOwningHandle").invoke(options)) return;
      String refusal = refusal(options, arguments, families, folder);
      if (refusal != null) {
        if (!mayBeServed(options) || !stop(refusal)) say(new RockmillException(refusal));
        return;
      }
      long opened = service();
      if (opened == 0) return;
      // A copy that is made meanwhile waits in afterCopy.
      synchronized (SERVED) {
        Loader.attach(opened, options, families, folder);
        SERVED.add(options);
      }
    } catch (Throwable error) {
      // Databases that are opened with the same options share a clone. Or the program has attached Rockmill itself, maybe
      // another copy of it.
      if (!Loader.ALREADY.equals(error.getMessage())) say(error);
    }
  }

  /**
   * Notes that options are a copy, which has the service of the original.
   *
   * @param made the new {@code Options} or {@code DBOptions} of some RocksJava
   * @param originals the arguments of their constructor
   */
  public static void afterCopy(Object made, @Nullable Object[] originals) {
    synchronized (SERVED) {
      for (Object original : originals) {
        if (original != null && SERVED.contains(original)) SERVED.add(made);
      }
    }
  }

  /** Says that {@link #afterCopy} is not called for all copies. */
  public static void missCopies() {
    knowsCopies = false;
  }

  /**
   * Stops the service if a served database gets a column family with {@code cf_paths}, since RocksDB could not move a job's
   * files there.
   *
   * @param database the {@code RocksDB} that it is called on
   * @param arguments of a method of some RocksJava that makes column families
   */
  public static void beforeCreate(Object database, @Nullable Object[] arguments) {
    try {
      // RocksJava before 9 does not note the options of a TtlDB, whose jobs are all declined for its compaction filter.
      if (Loader.isA(database, "TtlDB") || !mayBeServed(optionsOf(database))) return;
      String folder = (String) database.getClass().getMethod("getName").invoke(database);
      for (Object argument : arguments) {
        Collection<?> given = argument instanceof Collection ? (Collection<?>) argument : Arrays.asList(argument);
        if (Loader.hasPaths(given, folder)) stop(Loader.PATHS);
      }
    } catch (Throwable error) {
      // The paths are not known.
      if (!stop(error.toString())) say(error);
    }
  }

  /** Returns the options that a database was opened with, or null if they are not known. */
  private static @Nullable Object optionsOf(Object database) throws ReflectiveOperationException {
    Class<?> type = database.getClass();
    while (!type.getName().equals("org.rocksdb.RocksDB")) type = type.getSuperclass();
    Field options = type.getDeclaredField("options_");
    options.setAccessible(true);
    return options.get(database);
  }

  /** Returns whether a database with these options may have the service. */
  private static boolean mayBeServed(@Nullable Object options) {
    return !knowsCopies || options == null || SERVED.contains(options);
  }

  private static boolean hasFamilies(List<?> list) {
    return !list.isEmpty() && list.get(0) != null && Loader.isA(list.get(0), "ColumnFamilyDescriptor");
  }

  /** Returns why a database that is opened with these arguments cannot be served; null if it can, as far as they say. */
  private static @Nullable String refusal(
      Object options, @Nullable Object[] arguments, List<?> families, @Nullable String folder)
      throws ReflectiveOperationException {
    String refusal = Loader.refusal(options, families, folder);
    if (refusal != null) return refusal;
    for (Object argument : arguments) {
      if (argument == null || !Loader.isA(argument, "TransactionDBOptions")) continue;
      String policy = argument.getClass().getMethod("getWritePolicy").invoke(argument).toString();
      if (!policy.equals("WRITE_COMMITTED")) return "the write policy is " + policy + ": files have uncommitted data";
    }
    return null;
  }

  /** Leaves all further jobs to RocksDB. Returns false if there is no service. */
  private static synchronized boolean stop(String why) {
    if (service == 0) return false;
    Native.changeSettings(service, "paused=true;");
    say(new RockmillException(why + "; it stops until the process ends"));
    return true;
  }

  private static synchronized long service() {
    if (service != 0 || isRefused) return service;
    // It is tried once.
    isRefused = true;
    String unsupported = Loader.load();
    if (unsupported != null) throw new RockmillException(unsupported);
    Settings read = new Settings();
    read.setAll(settings);
    // beforeOpen refuses the other policies.
    read.setDefault("write_committed", "true");
    service = Native.open(read.text());
    isRefused = false;
    Bean.register(() -> new RockmillStats(Native.stats(service)));
    return service;
  }

  /**
   * Prints once why databases continue without Rockmill.
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
