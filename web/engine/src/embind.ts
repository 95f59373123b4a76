/*
 * ONNX Runtime calls WebNN through embind, whose glue makes small functions out of text with
 * `new Function`. A strict content security policy forbids that, and ONNX Runtime then aborts. The
 * texts are all of one pattern, so here the same functions are made without text. This belongs to
 * the version of ONNX Runtime that package.json pins; a text it does not know goes to the browser.
 */

/** What the glue hands to the functions that it makes. */
interface Helpers {
  toValue(handle: number): unknown;
  getStringOrSymbol?(name: number): string;
  toReturnWire?: unknown;
  emval_returnValue?(toReturnWire: unknown, destructors: number, value: unknown): unknown;
  /** `argFromPtr0`, `argFromPtr1` … */
  [argument: string]: unknown;
}

type Invoker = (handle: number, name: number, destructors: number, args: number) => unknown;

/** Makes embind's functions work in this worker without `unsafe-eval`. */
export function allowEmbind(): void {
  globalThis.Function = new Proxy(Function, {
    construct: (target, texts: unknown[]) =>
      embindFactory(texts) ?? Reflect.construct(target, texts),
  });
}

/** The function that embind's text stands for; null for any other text. */
export function embindFactory(texts: unknown[]): ((...helpers: unknown[]) => Invoker) | null {
  const [names, text] = texts;
  if (!Array.isArray(names) || typeof text !== "string" || names[0] !== "toValue") {
    return null;
  }
  const form = FORMS.find(({ pattern }) => pattern.test(text));
  if (form === undefined) {
    return null;
  }
  return (...values) => {
    const helpers = Object.fromEntries(names.map((name, at) => [name, values[at]])) as Helpers;
    const argumentNames = names.filter((name) => /^argFromPtr\d+$/.test(name));
    const readers = argumentNames.map((name) => helpers[name] as (at: number) => unknown);
    const { toReturnWire, emval_returnValue: giveBack } = helpers;
    return (handle, name, destructors, args) => {
      const given = readers.map((read, at) => read(args + WIDTH * at));
      const value = form.invoke(helpers, handle, name, given);
      return giveBack?.(toReturnWire, destructors, value);
    };
  };
}

/** Bytes between two arguments. */
const WIDTH = 8;

type Callable = (...given: unknown[]) => unknown;

const FORMS: {
  pattern: RegExp;
  invoke(helpers: Helpers, handle: number, name: number, given: unknown[]): unknown;
}[] = [
  {
    pattern: form("toValue\\(handle\\)\\[getStringOrSymbol\\(methodName\\)\\]"),
    invoke: (helpers, handle, name, given) => {
      const object = helpers.toValue(handle) as Record<string, Callable>;
      const method = helpers.getStringOrSymbol?.(name) ?? "";
      return (object[method] as Callable).apply(object, given);
    },
  },
  {
    pattern: form("new \\(toValue\\(handle\\)\\)"),
    invoke: (helpers, handle, _, given) =>
      Reflect.construct(helpers.toValue(handle) as new () => unknown, given),
  },
  {
    pattern: form("toValue\\(handle\\)"),
    invoke: (helpers, handle, _, given) => (helpers.toValue(handle) as Callable)(...given),
  },
  { pattern: form(""), invoke: (_helpers, _handle, _, given) => given.at(-1) },
];

/** The text of a function that does `callee` with its arguments. */
function form(callee: string): RegExp {
  const call = `${callee}\\([\\w(),+]*\\)`;
  const body = `(?:return emval_returnValue\\(toReturnWire, destructorsRef, ${call}\\)|${call})`;
  return new RegExp(
    `^return function \\(handle, methodName, destructorsRef, args\\) \\{\\s*${body}\\s*\\}$`,
  );
}
