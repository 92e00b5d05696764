package lockstep;

/** An event that carries a text: the number of the event, and the text. */
public record Line(long seq, String text) {

    static Line[] of(String[] texts) {
        Line[] lines = new Line[texts.length];
        for (int i = 0; i < texts.length; i++) {
            lines[i] = new Line(i, texts[i]);
        }
        return lines;
    }
}
