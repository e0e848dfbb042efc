// Browsers start no worker for a page that was opened from a file. There, search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = "<!doctype html>";
      this.inside = new Promise((ready) => {
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = inside.document.createElement("script");
          script.src = new URL(url, document.baseURI).href;
          script.addEventListener("load", () => ready(inside));
          inside.document.body.append(script);
        }, { once: true });
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}
