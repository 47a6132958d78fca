// Browsers give a page that is opened from a file no Worker, which the site's search asks for: there its script runs in
// a hidden frame of the page instead. The search itself looks for the name IFrameWorker.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      this.isReady = new Promise((done) => { script.onload = done; });
      frame.contentDocument.body.append(script);
    }

    postMessage(data) {
      this.isReady.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
