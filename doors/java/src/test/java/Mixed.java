import org.rockmill.Rockmill;
import org.rockmill.RockmillException;
import org.rocksdb.*;

/** Runs beside another version of RocksJava in the process: nothing is attached. */
public final class Mixed {
  public static void main(String[] arguments) {
    try (Rockmill rockmill = Rockmill.builder().build();
        Options options = new Options()) {
      rockmill.attach(options);
    } catch (RockmillException error) {
      if (!error.getMessage().contains("two versions of RocksJava")) throw error;
      System.out.println("two versions: refused");
      return;
    }
    throw new AssertionError("two versions of RocksJava are not refused");
  }
}
