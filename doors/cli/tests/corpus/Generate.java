// Writes the databases of the corpus with the RocksDB of a jar: scripts/corpus.sh runs it once for each version.
//
//   java -cp JAR:CLASSES Generate FOLDER once       families `default` and `two`, created and never opened again
//   java -cp JAR:CLASSES Generate FOLDER again 1    families `default`, `merged` and `reversed`; ends like a killed process
//   java -cp JAR:CLASSES Generate FOLDER again 2    opens the same database again, writes more, and closes it
//   java -cp JAR:CLASSES Generate FOLDER legacy     as `once`, with format_version 0, which was RocksJava's default up to
//                                                   5.18; range deletions are in `two` alone
//
// The last entries of every database are only in its log. FOLDER.txt then has the contents as its writer's iterators
// return them: a line for each entry, with family, key and value in hex. A model of the same operations and Get agree
// with it.
//
// One source serves all versions, so calls that a version lacks go through reflection.

import java.io.File;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.rocksdb.*;

public final class Generate {
    private final String folder;
    private final String database;
    private final Map<String, ColumnFamilyOptions> families = new LinkedHashMap<>();
    private final Map<String, ColumnFamilyHandle> handles = new LinkedHashMap<>();
    private final Map<String, TreeMap<byte[], byte[]>> model = new LinkedHashMap<>();
    private final FlushOptions waiting = new FlushOptions().setWaitForFlush(true);
    // Objects that native code uses must not be collected.
    private final List<Object> kept = new ArrayList<>();
    // Null while the operations of an earlier session are repeated for the model alone.
    private RocksDB db;

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        int session = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 1;
        new Generate(arguments[0], arguments[1]).run(session);
        // Ends like a killed process, without closing anything.
        Runtime.getRuntime().halt(0);
    }

    private Generate(String folder, String database) {
        this.folder = folder;
        this.database = database;
    }

    private void run(int session) throws Exception {
        boolean once = !database.equals("again");
        if (once) {
            family("default", compressions("NO", "SNAPPY", "ZLIB"));
            family("two", compressions("LZ4", "LZ4HC", "ZSTD"));
        } else {
            family("default", compressions("SNAPPY", "LZ4", "ZSTD")).setTableFormatConfig(filtered());
            family("merged", compressions("NO", "NO", "ZLIB")).setMergeOperatorName("stringappend");
            family("reversed", compressions("NO", "ZLIB", "LZ4"))
                    .setComparator(BuiltinComparator.REVERSE_BYTEWISE_COMPARATOR);
            model.put("reversed", new TreeMap<byte[], byte[]>(UNSIGNED.reversed()));
        }
        if (session == 2) {
            merges(1);
            reversed(1);
            levels("default", 1);
            log("default", 5);
        }
        open();
        if (once) {
            levels("default", 1);
            levels("two", 2);
            unusualKeys("two");
            log("default", 3);
            log("two", 4);
            batchOfBoth("default", "two");
        } else {
            merges(session);
            reversed(session);
            if (session == 1) {
                levels("default", 1);
            }
            log("default", 4 + session);
        }
        writeContents();
        if (session == 2) {
            for (ColumnFamilyHandle handle : handles.values()) {
                call(handle, "close|dispose");
            }
            db.close();
        }
    }

    // Operations. `round` makes their values differ.

    /** Files in levels 0, 1 and a deeper one, with overwritten and deleted keys. */
    private void levels(String family, int round) throws Exception {
        for (int i = 0; i < 240; i++) {
            put(family, key(i), value(i, round));
        }
        flush(family);
        deeper(family);
        for (int i = 300; i < 360; i++) {
            put(family, key(i), value(i, round + 10));
        }
        flush(family);
        compact(family, key(300), key(360));
        for (int i = 0; i < 360; i += 3) {
            put(family, key(i), value(i, round + 20));
        }
        for (int i = 5; i < 360; i += 11) {
            delete(family, key(i));
        }
        deleteRange(family, key(100), key(120));
        flush(family);
        for (int i = 90; i < 130; i += 4) {
            put(family, key(i), value(i, round + 30));
        }
        deleteRange(family, key(310), key(315));
        deleteRange(family, key(110), key(118));
        for (int i = 400; i < 404; i++) {
            put(family, key(i), value(i, round));
        }
        flush(family);
        for (int i = 400; i < 403; i++) {
            singleDelete(family, key(i));
        }
        put(family, key(405), value(405, round));
        flush(family);
    }

    /** Entries that are only in the log. */
    private void log(String family, int round) throws Exception {
        for (int i = 1; i < 240; i += 17) {
            put(family, key(i), value(i, round + 40));
        }
        for (int i = 7; i < 240; i += 29) {
            delete(family, key(i));
        }
        deleteRange(family, key(200), key(207));
        put(family, key(203), value(203, round + 50));
        put(family, key(900 + round), value(900, round));
    }

    private void unusualKeys(String family) throws Exception {
        put(family, new byte[0], bytes("the empty key"));
        put(family, bytes("empty value"), new byte[0]);
        put(family, new byte[] {0}, new byte[] {0, (byte) 0xff, 0});
        put(family, new byte[] {(byte) 0xff, (byte) 0xff}, bytes("last"));
        put(family, "Schl\u00fcssel".getBytes("UTF-8"), "W\u00e4rme".getBytes("UTF-8"));
        flush(family);
    }

    /** One batch over two column families: the result of each is complete only with both. */
    private void batchOfBoth(String one, String other) throws Exception {
        WriteBatch batch = new WriteBatch();
        for (String family : new String[] {one, other}) {
            ColumnFamilyHandle handle = handles.get(family);
            for (int i = 500; i < 510; i++) {
                batch.put(handle, key(i), value(i, 1));
                model.get(family).put(key(i), value(i, 1));
            }
            call(batch, "delete|remove", handle, key(501));
            model.get(family).remove(key(501));
        }
        db.write(new WriteOptions(), batch);
    }

    /** Merge operands over values, over deletes, alone, and only in the log. */
    private void merges(int session) throws Exception {
        String family = "merged";
        for (int i = 0; i < 60; i++) {
            if (i % 3 == 0) {
                put(family, key(i), value(i, session));
            }
            if (i % 3 == 1) {
                delete(family, key(i));
            }
        }
        flush(family);
        if (session == 1) {
            deeper(family);
        }
        for (int i = 0; i < 60; i += 2) {
            merge(family, key(i), bytes("m" + i + "." + session));
        }
        flush(family);
        for (int i = 0; i < 60; i += 5) {
            merge(family, key(i), bytes("n" + i + "." + session));
        }
        put(family, key(70 + session), value(70, session));
    }

    private void reversed(int session) throws Exception {
        String family = "reversed";
        for (int i = 0; i < 150; i++) {
            put(family, key(i), value(i, session));
        }
        flush(family);
        if (session == 1) {
            deeper(family);
        }
        for (int i = 0; i < 150; i += 4) {
            delete(family, key(i));
        }
        // In the order of the family: key(60) is before key(40).
        deleteRange(family, key(60), key(40));
        flush(family);
        for (int i = 2; i < 150; i += 31) {
            put(family, key(i), value(i, session + 60));
        }
    }

    // An operation, done to the database and to the model.

    private void put(String family, byte[] key, byte[] value) throws Exception {
        model.get(family).put(key, value);
        if (db != null) {
            db.put(handles.get(family), key, value);
        }
    }

    private void delete(String family, byte[] key) throws Exception {
        model.get(family).remove(key);
        if (db != null) {
            call(db, "delete|remove", handles.get(family), key);
        }
    }

    /** Deletes a key that was put once. Versions without SingleDelete use Delete. */
    private void singleDelete(String family, byte[] key) throws Exception {
        model.get(family).remove(key);
        if (db != null) {
            call(db, "singleDelete|delete|remove", handles.get(family), key);
        }
    }

    /** Versions before 5.0 have no DeleteRange; they leave the keys. */
    private void deleteRange(String family, byte[] begin, byte[] end) throws Exception {
        if (database.equals("legacy") && family.equals("default")) {
            return;
        }
        if (find(RocksDB.class, "deleteRange", ColumnFamilyHandle.class, byte[].class, byte[].class) == null) {
            return;
        }
        model.get(family).subMap(begin, end).clear();
        if (db != null) {
            call(db, "deleteRange", handles.get(family), begin, end);
        }
    }

    private void merge(String family, byte[] key, byte[] operand) throws Exception {
        byte[] value = model.get(family).get(key);
        model.get(family).put(key, value == null ? operand : joined(value, operand));
        if (db != null) {
            db.merge(handles.get(family), key, operand);
        }
    }

    private static byte[] joined(byte[] value, byte[] operand) {
        byte[] both = Arrays.copyOf(value, value.length + 1 + operand.length);
        both[value.length] = ',';
        System.arraycopy(operand, 0, both, value.length + 1, operand.length);
        return both;
    }

    private void flush(String family) throws Exception {
        if (db != null) {
            db.flush(waiting, handles.get(family));
        }
    }

    private void compact(String family, byte[] begin, byte[] end) throws Exception {
        if (db != null) {
            db.compactRange(handles.get(family), begin, end);
        }
    }

    /** Compacts all files of a family, and moves the result to level 3. */
    private void deeper(String family) throws Exception {
        final int level = 3;
        if (db == null) {
            return;
        }
        ColumnFamilyHandle handle = handles.get(family);
        Class<?>[] old = {ColumnFamilyHandle.class, boolean.class, int.class, int.class};
        if (find(RocksDB.class, "compactRange", old) != null) {
            call(db, "compactRange", handle, true, level, 0);
            return;
        }
        Object options = Class.forName("org.rocksdb.CompactRangeOptions").getConstructor().newInstance();
        call(options, "setChangeLevel", true);
        call(options, "setTargetLevel", level);
        Class<?>[] types = {ColumnFamilyHandle.class, byte[].class, byte[].class, options.getClass()};
        find(RocksDB.class, "compactRange", types).invoke(db, handle, null, null, options);
    }

    // Opening.

    private ColumnFamilyOptions family(String name, List<CompressionType> compressions) {
        ColumnFamilyOptions options = new ColumnFamilyOptions();
        options.setDisableAutoCompactions(true);
        options.setTargetFileSizeBase(4096);
        options.setCompressionPerLevel(compressions);
        options.setTableFormatConfig(table());
        families.put(name, options);
        model.put(name, new TreeMap<byte[], byte[]>(UNSIGNED));
        return options;
    }

    /** Small blocks, and the version's format; where that is 0, 2 as in C++, except in `legacy`. */
    private BlockBasedTableConfig table() {
        BlockBasedTableConfig table = new BlockBasedTableConfig();
        table.setBlockSize(1024);
        if (table.formatVersion() == 0 && !database.equals("legacy")) {
            table.setFormatVersion(2);
        }
        return table;
    }

    private BlockBasedTableConfig filtered() {
        BloomFilter filter = new BloomFilter(10, false);
        kept.add(filter);
        BlockBasedTableConfig table = table();
        table.setFilter(filter);
        return table;
    }

    /** Compressions of levels 0, 1 and the deeper ones. A version without ZSTD uses zlib. */
    private static List<CompressionType> compressions(String... names) {
        List<CompressionType> types = new ArrayList<>();
        for (int level = 0; level < 7; level++) {
            String name = names[Math.min(level, names.length - 1)];
            if (name.equals("ZSTD") && !hasZstd()) {
                name = "ZLIB";
            }
            types.add(CompressionType.valueOf(name.equals("NO") ? "NO_COMPRESSION" : name + "_COMPRESSION"));
        }
        return types;
    }

    private static boolean hasZstd() {
        for (CompressionType type : CompressionType.values()) {
            if (type.name().equals("ZSTD_COMPRESSION")) {
                return true;
            }
        }
        return false;
    }

    private void open() throws Exception {
        DBOptions options = new DBOptions();
        options.setCreateIfMissing(true);
        options.setCreateMissingColumnFamilies(true);
        List<ColumnFamilyDescriptor> descriptors = new ArrayList<>();
        for (Map.Entry<String, ColumnFamilyOptions> family : families.entrySet()) {
            descriptors.add(new ColumnFamilyDescriptor(bytes(family.getKey()), family.getValue()));
        }
        List<ColumnFamilyHandle> opened = new ArrayList<>();
        db = RocksDB.open(options, folder, descriptors, opened);
        kept.add(options);
        kept.add(descriptors);
        int at = 0;
        for (String name : families.keySet()) {
            handles.put(name, opened.get(at++));
        }
    }

    // Contents.

    private void writeContents() throws Exception {
        try (PrintStream out = new PrintStream(new FileOutputStream(new File(folder + ".txt")), false, "UTF-8")) {
            for (String family : families.keySet()) {
                RocksIterator iterator = db.newIterator(handles.get(family));
                iterator.seekToFirst();
                for (Map.Entry<byte[], byte[]> expected : model.get(family).entrySet()) {
                    require(iterator.isValid(), family + " ends early");
                    byte[] key = iterator.key();
                    byte[] value = iterator.value();
                    require(Arrays.equals(key, expected.getKey()), family + ": not " + hex(key));
                    require(Arrays.equals(value, expected.getValue()), family + ": value of " + hex(key));
                    require(Arrays.equals(value, db.get(handles.get(family), key)), family + ": Get " + hex(key));
                    out.println(family + " " + hex(key) + " " + hex(value));
                    iterator.next();
                }
                require(!iterator.isValid(), family + " has more");
            }
        }
    }

    private static void require(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    // Bytes.

    private static final Comparator<byte[]> UNSIGNED = new Comparator<byte[]>() {
        public int compare(byte[] one, byte[] other) {
            for (int i = 0; i < Math.min(one.length, other.length); i++) {
                int difference = (one[i] & 0xff) - (other[i] & 0xff);
                if (difference != 0) {
                    return difference;
                }
            }
            return one.length - other.length;
        }
    };

    private static byte[] key(int number) {
        return bytes(String.format("key%05d", number));
    }

    /** A value of 20 to 60 bytes, a part of which compresses. */
    private static byte[] value(int number, int round) {
        StringBuilder text = new StringBuilder("value " + number + " of round " + round + " ");
        long state = number * 1000003L + round;
        for (int i = 0; i < (number * 7 + round * 13) % 40; i++) {
            state = (state * 6364136223846793005L + 1442695040888963407L);
            text.append(i % 2 == 0 ? 'x' : (char) ('a' + (state >>> 33) % 26));
        }
        return bytes(text.toString());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.ISO_8859_1);
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    // Calls of methods that some versions lack.

    private static Method find(Class<?> of, String name, Class<?>... types) {
        try {
            return of.getMethod(name, types);
        } catch (NoSuchMethodException missing) {
            return null;
        }
    }

    /** Calls the first method of these names, separated by `|`, that exists. */
    private static Object call(Object object, String names, Object... arguments) throws Exception {
        Class<?>[] types = new Class<?>[arguments.length];
        for (int i = 0; i < types.length; i++) {
            Class<?> type = arguments[i].getClass();
            types[i] = type == Boolean.class ? boolean.class : type == Integer.class ? int.class : type;
        }
        for (String name : names.split("\\|")) {
            Method method = find(object.getClass(), name, types);
            if (method != null) {
                try {
                    return method.invoke(object, arguments);
                } catch (InvocationTargetException thrown) {
                    throw (Exception) thrown.getCause();
                }
            }
        }
        throw new NoSuchMethodException(names);
    }
}
