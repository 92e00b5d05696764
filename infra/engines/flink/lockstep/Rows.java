package lockstep;

import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The output rows of one sink: their digest, and in the verified pass also the rows themselves.
 *
 * <p>streaming_core/runtime/ABI.md, section Digest, defines the digest. A kept row is a row of big-endian words in
 * {@code rows-N}. A text there is its length; its bytes follow in {@code texts-N}.
 */
final class Rows {
    private static final long SEED = 0x243F6A8885A308D3L;
    private static final long K1 = 0x9E3779B97F4A7C15L;
    private static final long K2 = 0xD6E8FEB86659FD93L;

    long count;
    long sum;
    private long hash = SEED;
    private final DataOutputStream words;
    private final DataOutputStream texts;

    /** Keeps the rows in a folder, or not at all if it is null. */
    Rows(Path folder, int sink) throws IOException {
        words = folder == null ? null : open(folder.resolve("rows-" + sink));
        texts = folder == null ? null : open(folder.resolve("texts-" + sink));
    }

    private static DataOutputStream open(Path path) throws IOException {
        return new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path), 1 << 16));
    }

    void word(long value) throws IOException {
        fold(value);
        if (words != null) {
            words.writeLong(value);
        }
    }

    void real(double value) throws IOException {
        word(Double.doubleToRawLongBits(value));
    }

    void flag(boolean value) throws IOException {
        word(value ? 1 : 0);
    }

    void text(String text) throws IOException {
        int length = text.length();
        word(length);
        for (int start = 0; start < length; start += 8) {
            int stop = Math.min(start + 8, length);
            long value = 0;
            for (int at = stop - 1; at >= start; at--) {
                value = value << 8 | text.charAt(at);
            }
            fold(value);
        }
        if (texts != null) {
            texts.writeBytes(text);
        }
    }

    void endRow() {
        hash *= K2;
        sum += hash ^ hash >>> 29;
        count++;
        hash = SEED;
    }

    void close() throws IOException {
        if (words != null) {
            words.close();
            texts.close();
        }
    }

    private void fold(long value) {
        hash = (hash ^ value) * K1;
        hash ^= hash >>> 32;
    }
}
