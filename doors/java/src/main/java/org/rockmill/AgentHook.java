package org.rockmill;

import java.lang.System.Logger.Level;
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
      String refusal = refusal(options, arguments, families, folder);
      if (refusal != null) {
        // The options may be copies of others, and have the service of these.
        if (!stop(refusal)) say(new RockmillException(refusal));
        return;
      }
      // Databases that are opened with the same options share a clone.
      if (!SEEN.add(options)) return;
      // RocksJava itself reports closed options.
      if (!(Boolean) options.getClass().getMethod("isOwningHandle").invoke(options)) return;
      long opened = service();
      if (opened != 0) Loader.attach(opened, options, families, folder);
    } catch (Throwable error) {
      // The program has attached Rockmill itself, maybe another copy of it.
      if (!Loader.ALREADY.equals(error.getMessage())) say(error);
    }
  }

  /**
   * Stops the service if a new column family has {@code cf_paths}, since RocksDB could not move a job's files there.
   *
   * @param database the {@code RocksDB} that it is called on
   * @param arguments of a method of some RocksJava that makes column families
   */
  public static void beforeCreate(Object database, @Nullable Object[] arguments) {
    try {
      String folder = (String) database.getClass().getMethod("getName").invoke(database);
      for (Object argument : arguments) {
        Collection<?> given = argument instanceof Collection ? (Collection<?>) argument : Arrays.asList(argument);
        if (Loader.hasPaths(given, folder)) stop(Loader.PATHS);
      }
    } catch (Throwable error) {
      say(error);
    }
  }

  private static boolean hasFamilies(List<?> list) {
    return !list.isEmpty() && list.get(0) != null && Loader.isA(list.get(0), "ColumnFamilyDescriptor");
  }

  /** Returns why a database that is opened with these arguments cannot be served; null if it can, as far as they say. */
  private static @Nullable String refusal(
      Object options, @Nullable Object[] arguments, List<?> families, @Nullable String folder)
      throws ReflectiveOperationException {
    if (Loader.hasPaths(options, families, folder)) return Loader.PATHS;
    for (Object argument : arguments) {
      if (argument == null || !Loader.isA(argument, "TransactionDBOptions")) continue;
      String policy = argument.getClass().getMethod("getWritePolicy").invoke(argument).toString();
      if (!policy.equals("WRITE_COMMITTED")) return "the write policy is " + policy + ": files have uncommitted data";
    }
    return null;
  }

  /** Leaves all further jobs to RocksDB. Returns false if no options have the service. */
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
