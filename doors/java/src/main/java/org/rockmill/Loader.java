package org.rockmill;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.WeakHashMap;
import org.jspecify.annotations.Nullable;

/** Loads the native libraries from the jar, and finds those of RocksJava in this process. */
final class Loader {
  /** From this version on, RocksDB's library exports a C API that takes a compaction service. */
  private static final int FIRST_WITH_C_API = 10 << 16 | 10 << 8;

  private static final String FOLDER = "/META-INF/native/linux-x86_64/";

  /**
   * Stands in a shim for the path of RocksDB's library, which the linker of the system then looks functions up in. So
   * that library's names need not be made global, which would mix up two RocksDBs of one process. build.sh has it too.
   */
  private static final byte[] PLACE = "ROCKMILL-PATH-OF-ROCKSDB-".getBytes(StandardCharsets.US_ASCII);

  /** Length of the name that begins with {@link #PLACE}. */
  private static final int PLACE_BYTES = 1024;

  /** The error for options that have a service. shim.cpp says the same. */
  static final String ALREADY = "the options have a compaction service already";

  /**
   * Options with a service, and the handles of their clones. Copies of options have handles of their own. From 10.10 on,
   * RocksDB does not say whether options have a service, so this map has to. The keys are {@code RocksObject}, of any
   * class loader.
   */
  static final Map<Object, Long> ATTACHED = new WeakHashMap<>();

  private static boolean isLoaded;

  /** Shims that are mapped, by the path of the library that they are for. */
  private static final Map<String, String> SHIMS = new HashMap<>();

  private Loader() {}

  /** Returns why there is no native part for this system; null if there is one. */
  static @Nullable String unsupported() {
    String system = System.getProperty("os.name", "");
    String machine = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
    if (!system.equals("Linux") || !(machine.equals("amd64") || machine.equals("x86_64"))) {
      return "Rockmill runs on Linux on x86-64, and this is " + system + " on " + machine;
    }
    return null;
  }

  /** Loads the native part, once. */
  static synchronized void load() {
    if (isLoaded) return;
    Path folder = temporaryFolder();
    List<Path> files = new ArrayList<>();
    try {
      // The second needs the first, and finds it beside itself.
      for (String name : Arrays.asList("librockmill.so.2", "librockmill_java.so")) {
        files.add(write(folder.resolve(name), resource(name)));
      }
      System.load(files.get(1).toString());
      isLoaded = true;
    } catch (UnsatisfiedLinkError error) {
      throw new RockmillException(
          "the native library in " + folder + " cannot be loaded (" + error.getMessage() + "); if that folder is"
              + " mounted noexec, name another one with -Drockmill.tmpdir=FOLDER",
          error);
    } finally {
      remove(folder, files);
    }
  }

  /**
   * Attaches a service to options of the RocksDB that the caller's class loader has loaded, and notes them in {@link
   * #ATTACHED}.
   *
   * @param options a {@code RocksObject}
   * @param nativeHandle its native handle
   * @param version that RocksDB's version, as RocksJava says it
   */
  static synchronized void attach(long service, Object options, long nativeHandle, String version) {
    synchronized (ATTACHED) {
      if (ATTACHED.containsKey(options)) throw new RockmillException(ALREADY);
      ATTACHED.put(options, clone(service, nativeHandle, version));
    }
  }

  /** Returns the handle of the options' clone for {@link Native#cancelJobs}, or 0. */
  static long cloneOf(Object options) {
    synchronized (ATTACHED) {
      return ATTACHED.getOrDefault(options, 0L);
    }
  }

  private static long clone(long service, long options, String version) {
    int number = number(version);
    List<String> libraries = new ArrayList<>();
    for (String library : Native.libraries().split("\n")) {
      if (library.isEmpty()) continue;
      int found = Native.version(library);
      // They share static members of templates, whichever class loader has loaded them, and crash without Rockmill as well.
      if (found != 0 && found != number) {
        throw new RockmillException(
            "this process has two versions of RocksJava, " + version + " and another one in " + library
                + ", which do not work in one process");
      }
      if (found == number) libraries.add(library);
    }
    if (libraries.isEmpty()) {
      throw new RockmillException(
          "no library of RocksJava " + version + " is mapped under its own name (librocksdbjni..); Rockmill does not"
              + " know renamed ones");
    }
    RockmillException refused = null;
    for (String library : libraries) {
      try {
        String shim = number >= FIRST_WITH_C_API ? null : shim(library, version);
        return Native.attach(service, options, library, shim);
      } catch (RockmillException error) {
        // With several class loaders, the options may be of another library of the same version.
        refused = error;
      }
    }
    throw refused;
  }

  private static int number(String version) {
    int number = 0;
    String[] parts = version.split("\\.");
    for (int at = 0; at < 3; ++at) number = number << 8 | Integer.parseInt(parts[at]);
    return number;
  }

  /** Returns a file with the shim for a version, whose functions of RocksDB are those of `library`. */
  private static String shim(String library, String version) {
    String known = SHIMS.get(library);
    if (known != null) return known;
    byte[] shim;
    try {
      shim = resource("rocksdb-" + version + ".so");
    } catch (RockmillException error) {
      throw new RockmillException(
          "Rockmill has no part for RocksJava " + version + "; it has parts for " + versions() + ", and serves 10.10"
              + " and newer without one");
    }
    byte[] path = library.getBytes(StandardCharsets.UTF_8);
    int place = find(shim, PLACE);
    if (place < 0 || path.length >= PLACE_BYTES) {
      throw new RockmillException("the path of RocksDB's library is too long: " + library);
    }
    System.arraycopy(path, 0, shim, place, path.length);
    shim[place + path.length] = 0;
    Path folder = temporaryFolder();
    Path file = write(folder.resolve("rocksdb-" + version + ".so"), shim);
    // It is removed when the process ends normally: it is opened by its path for the first of the options. The JVM
    // removes in the reverse order.
    folder.toFile().deleteOnExit();
    file.toFile().deleteOnExit();
    SHIMS.put(library, file.toString());
    return file.toString();
  }

  /** Returns the versions before 10.10 that the jar has shims for. */
  static String versions() {
    return new String(resource("versions"), StandardCharsets.UTF_8).trim().replace("\n", ", ");
  }

  private static int find(byte[] bytes, byte[] what) {
    for (int at = 0; at + PLACE_BYTES <= bytes.length; ++at) {
      if (Arrays.equals(bytes, at, at + what.length, what, 0, what.length)) return at;
    }
    return -1;
  }

  private static Path temporaryFolder() {
    String given = System.getProperty("rockmill.tmpdir");
    try {
      return given != null
          ? Files.createTempDirectory(Path.of(given), "rockmill")
          : Files.createTempDirectory("rockmill");
    } catch (IOException error) {
      throw new RockmillException(
          "no temporary folder can be made (" + error + "); name one with -Drockmill.tmpdir=FOLDER", error);
    }
  }

  private static byte[] resource(String name) {
    try (InputStream in = Loader.class.getResourceAsStream(FOLDER + name)) {
      if (in == null) throw new RockmillException("the jar of Rockmill lacks " + FOLDER + name);
      return in.readAllBytes();
    } catch (IOException error) {
      throw new RockmillException("the jar of Rockmill cannot be read (" + error + ")", error);
    }
  }

  private static Path write(Path file, byte[] bytes) {
    try {
      return Files.write(file, bytes);
    } catch (IOException error) {
      throw new RockmillException(file + " cannot be written (" + error + ")", error);
    }
  }

  /** The libraries stay mapped. */
  private static void remove(Path folder, List<Path> files) {
    List<Path> all = new ArrayList<>(files);
    Collections.reverse(all);
    all.add(folder);
    for (Path path : all) {
      try {
        Files.deleteIfExists(path);
      } catch (IOException error) {
        // It stays in the temporary folder.
      }
    }
  }
}
