// Search where the site is opened from a disk: browsers give pages of file: no workers, so a hidden frame does the worker's work.
// The theme's worker looks for IFrameWorker in its parent, and for its own address in the frame's first script.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.close();
      const load = (url) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: new URL(url, location.href).href, onload: done, onerror: failed });
          inside.document.documentElement.append(script);
        });
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => load(url)), Promise.resolve());
      load(address).then(() => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
