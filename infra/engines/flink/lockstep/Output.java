package lockstep;

import java.io.IOException;

/** An output row of an application. */
interface Output {

    /** Writes the columns of the row, in the order of the schema. */
    void writeTo(Rows rows) throws IOException;

    /** Returns the number of the event that caused the row, or -1 if the end of the stream did. */
    long cause();
}
