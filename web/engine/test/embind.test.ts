import { expect, it } from "vitest";
import { embindFactory } from "#engine/embind";

const method =
  "toValue(handle)[getStringOrSymbol(methodName)](argFromPtr0(args),argFromPtr1(args+8))";
const wrap = (body: string) =>
  `return function (handle, methodName, destructorsRef, args) {\n  ${body}\n  }`;

const objects = [{ join: (a: number, b: number) => `${a} ${b}` }, Array];
const helpers = {
  toValue: (handle: number) => objects[handle],
  argFromPtr0: (at: number) => at,
  argFromPtr1: (at: number) => at,
  getStringOrSymbol: () => "join",
  toReturnWire: "wire",
  emval_returnValue: (wire: string, destructors: number, value: unknown) => [
    wire,
    destructors,
    value,
  ],
};

/** Makes the function from its text, once by the browser's way and once by ours. */
function both(names: (keyof typeof helpers)[], text: string) {
  const values = names.map((name) => helpers[name]);
  const theirs = new Function(names.join(), text)(...values);
  const ours = embindFactory([names, text])?.(...values);
  return { theirs, ours };
}

it.each([
  [
    "a method with a result",
    `return emval_returnValue(toReturnWire, destructorsRef, ${method})`,
    0,
  ],
  ["a method without one", method, 0],
  [
    "a constructor",
    "return emval_returnValue(toReturnWire, destructorsRef, new (toValue(handle))(argFromPtr0(args)))",
    1,
  ],
  [
    "a function",
    "return emval_returnValue(toReturnWire, destructorsRef, toValue(handle)(argFromPtr0(args)))",
    1,
  ],
  ["a cast", "return emval_returnValue(toReturnWire, destructorsRef, (argFromPtr0(args)))", 0],
])("does what the text of %s says", (_, body, handle) => {
  const names: (keyof typeof helpers)[] = ["toValue"];
  if (body.includes("argFromPtr0")) {
    names.push("argFromPtr0");
  }
  if (body.includes("argFromPtr1")) {
    names.push("argFromPtr1");
  }
  if (body.includes("getString")) {
    names.push("getStringOrSymbol");
  }
  if (body.includes("emval")) {
    names.push("toReturnWire", "emval_returnValue");
  }
  const { theirs, ours } = both(names, wrap(body));
  expect(ours?.(handle, 0, 7, 3)).toEqual(theirs(handle, 0, 7, 3));
});

it("leaves any other text to the browser", () => {
  expect(embindFactory(["return 1"])).toBeNull();
  expect(embindFactory([["toValue"], "return 1"])).toBeNull();
  expect(embindFactory([["toValue"], wrap("toValue(handle)(args); steal()")])).toBeNull();
});
