/*
 * Whose turn it is. Tasks go in the order in which they came, except that one that is not ready yet
 * (its blobs are on their way) lets those pass that have nothing to do with it.
 */

export interface Waiting {
  readonly touches: readonly string[];
  ready(): boolean;
}

export class Turns<T extends Waiting> {
  #waiting: T[] = [];

  get length(): number {
    return this.#waiting.length;
  }

  add(task: T): void {
    this.#waiting.push(task);
  }

  remove(task: T): boolean {
    const at = this.#waiting.indexOf(task);
    if (at >= 0) {
      this.#waiting.splice(at, 1);
    }
    return at >= 0;
  }

  clear(): T[] {
    return this.#waiting.splice(0);
  }

  /**
   * Takes out the first that can go, or none while another is under way. Each that nothing before
   * it holds up is asked whether it is ready, so that it can begin to get ready.
   */
  next(underWay: T | null): T | null {
    let chosen = underWay;
    const held = new Set<string>(underWay?.touches);
    // A copy, because getting ready may fail and take a task out.
    for (const task of [...this.#waiting]) {
      const isHeld = task.touches.some((name) => held.has(name));
      for (const name of task.touches) {
        held.add(name);
      }
      if (!isHeld && task.ready()) {
        chosen ??= task;
      }
    }
    if (underWay || !chosen) {
      return null;
    }
    this.remove(chosen);
    return chosen;
  }
}
