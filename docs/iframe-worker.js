// Search where the site is opened as files: browsers start no worker there, so its script runs in a hidden frame.
// (mkdocs.yml names this file; its name keeps the plugin `offline` from loading such a script from elsewhere.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise(resolve => {
        this.frame.onload = resolve;
      });
      window.addEventListener("message", event => {
        if (event.source !== this.frame.contentWindow) return;
        const answer = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(answer);
        if (this.onmessage) this.onmessage(answer);
      });
      this.frame.srcdoc = `<script>
        const outside = window.parent;
        window.postMessage = data => outside.postMessage(data, "*");
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          const script = Object.assign(document.createElement("script"), { src: url, onload: done, onerror: failed });
          document.head.append(script);
        })), Promise.resolve());
      <\/script><script src="${new URL(url, location)}"><\/script>`;
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
