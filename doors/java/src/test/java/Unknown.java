import org.rockmill.Rockmill;
import org.rockmill.RockmillException;
import org.rocksdb.*;

/** The attachment is refused with a sentence that contains the argument. */
public final class Unknown {
  public static void main(String[] arguments) {
    RocksDB.loadLibrary();
    try (Rockmill rockmill = Rockmill.builder().build();
        Options options = new Options()) {
      rockmill.attach(options);
    } catch (RockmillException error) {
      if (!error.getMessage().contains(arguments[0])) throw error;
      System.out.println("refused: " + error.getMessage());
      return;
    }
    throw new AssertionError("this is not refused: " + arguments[0]);
  }
}
