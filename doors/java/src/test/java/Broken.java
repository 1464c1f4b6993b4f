import java.io.InputStream;

/** A class of RocksJava that the agent cannot read. The agent has to say so, and the JVM refuses the class itself. */
public final class Broken {
  private static final int MAJOR_VERSION_AT = 7;

  public static void main(String[] arguments) throws Exception {
    byte[] bytes;
    try (InputStream in = Broken.class.getResourceAsStream("/org/rocksdb/TtlDB.class")) {
      bytes = in.readAllBytes();
    }
    bytes[MAJOR_VERSION_AT] = 120;
    ClassLoader loader = new ClassLoader(Broken.class.getClassLoader()) {
      @Override
      protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
        return name.equals("org.rocksdb.TtlDB") ? defineClass(name, bytes, 0, bytes.length) : super.loadClass(name, resolve);
      }
    };
    try {
      Class.forName("org.rocksdb.TtlDB", false, loader);
    } catch (UnsupportedClassVersionError error) {
      return;
    }
    throw new AssertionError("the JVM knows the class");
  }
}
