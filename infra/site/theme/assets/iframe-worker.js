// Browsers start no worker from a file. There, the search runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  // A worker gets copies.
  const message = data => new MessageEvent("message", { data: structuredClone(data) });
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script src="${script}"></` + "script>";
      this.frame = frame;
      this.ready = new Promise(resolve => frame.addEventListener("load", () => {
        const inner = frame.contentWindow;
        inner.postMessage = data => {
          const event = message(data);
          this.dispatchEvent(event);
          this.onmessage?.(event);
        };
        resolve(inner);
      }));
      const add = () => document.body.append(frame);
      document.body ? add() : addEventListener("DOMContentLoaded", add);
    }
    postMessage(data) {
      this.ready.then(inner => inner.dispatchEvent(message(data)));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
