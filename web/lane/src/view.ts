/* The page's elements. Knows how things look, not what they mean. */

import type { Capabilities } from "#engine/capabilities";
import {
  adapterWords,
  browserFacts,
  byteWords,
  type Headline,
  isSoftware,
  type LaneView,
  laneFacts,
  laneTitle,
  laneTrouble,
} from "#lane/words";

export class View {
  readonly #state = byId("state");
  readonly #headline = byId("headline");
  readonly #detail = byId("detail");
  readonly #toggle = byId("toggle") as HTMLButtonElement;
  readonly #lanes = byId("lanes");
  readonly #about = byId("about");
  readonly #browser = byId("browser");
  readonly #cards = new Map<number, Card>();

  onToggle(callback: () => void): void {
    this.#toggle.addEventListener("click", callback);
  }

  showHeadline({ state, title, detail }: Headline): void {
    this.#state.dataset.state = state;
    const tab = `${title} · Holdfast`;
    if (document.title !== tab) {
      document.title = tab;
    }
    setText(this.#headline, title);
    setText(this.#detail, detail);
  }

  /** Null hides the button. */
  showToggle(label: string | null): void {
    this.#toggle.hidden = label === null;
    setText(this.#toggle, label ?? "");
  }

  showBrowser(capabilities: Capabilities, cacheBytes: number): void {
    this.#about.hidden = false;
    showFacts(this.#browser, browserFacts(capabilities, cacheBytes));
  }

  clearLanes(): void {
    this.#cards.clear();
    this.#lanes.replaceChildren();
  }

  showLane(view: LaneView, capabilities: Capabilities): void {
    let card = this.#cards.get(view.lane);
    if (!card) {
      card = new Card(view, capabilities);
      this.#cards.set(view.lane, card);
      this.#lanes.append(card.element);
    }
    card.show(view);
  }
}

class Card {
  readonly element = make("section", "lane");
  readonly #facts = make("dl");
  readonly #download = make("div", "download");
  readonly #bar = make("progress");
  readonly #bytes = make("p");
  readonly #error = make("p", "error");

  constructor({ lane, backend }: LaneView, capabilities: Capabilities) {
    const title = make("h2");
    title.id = `lane-${lane}`;
    title.textContent = laneTitle(backend);
    this.element.setAttribute("aria-labelledby", title.id);
    const adapter = make("p", "adapter");
    adapter.textContent = adapterWords(backend, capabilities);
    const heading = make("div", "heading");
    heading.append(title);
    if (backend === "webgpu" && isSoftware(capabilities)) {
      const badge = make("span", "badge");
      badge.textContent = "software adapter";
      heading.append(badge);
    }
    this.#error.setAttribute("role", "status");
    this.#bar.setAttribute("aria-label", "Download");
    this.#download.append(this.#bytes, this.#bar);
    this.element.append(heading, adapter, this.#facts, this.#download, this.#error);
    this.#download.hidden = true;
    this.#error.hidden = true;
  }

  show(view: LaneView): void {
    const { missing, status } = view;
    this.element.classList.toggle("missing", missing !== null);
    if (status && missing === null) {
      showFacts(this.#facts, laneFacts(status));
      this.#showDownload(status.downloads);
    }
    this.#facts.hidden = !status || missing !== null;
    const trouble = laneTrouble(view);
    this.#error.hidden = trouble === null;
    setText(this.#error, trouble ?? "");
  }

  #showDownload(downloads: { doneBytes: number; totalBytes: number } | null): void {
    this.#download.hidden = downloads === null;
    if (!downloads) {
      return;
    }
    this.#bar.max = Math.max(1, downloads.totalBytes);
    this.#bar.value = downloads.doneBytes;
    const { doneBytes, totalBytes } = downloads;
    setText(this.#bytes, `Getting models: ${byteWords(doneBytes)} of ${byteWords(totalBytes)}`);
  }
}

function showFacts(list: HTMLElement, facts: [string, string][]): void {
  while (list.children.length > facts.length) {
    list.lastElementChild?.remove();
  }
  facts.forEach(([name, value], at) => {
    let row = list.children[at];
    if (!row) {
      row = make("div");
      row.append(make("dt"), make("dd"));
      list.append(row);
    }
    setText(row.children[0] as Element, name);
    setText(row.children[1] as Element, value);
  });
}

/** Leaves text alone that is the same, so that screen readers do not say it again. */
function setText(element: Element, text: string): void {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) {
    element.className = className;
  }
  return element;
}

function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) {
    throw new Error(`the page has no #${id}`);
  }
  return element;
}
