import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { Loss } from "#engine/loss";

function device(): { loss: Loss; lose: (message: string) => void } {
  let lose = (_: string) => {};
  const lost = new Promise<{ message: string }>((resolve) => {
    lose = (message) => resolve({ message });
  });
  return { loss: new Loss(lost, "the device was lost"), lose };
}

it("gives what was worked for, or why that failed", async () => {
  const { loss } = device();
  expect(await loss.race(Promise.resolve(7))).toBe(7);
  await expect(loss.race(Promise.reject(new Error("no")))).rejects.toThrow("no");
  expect(loss.reason()).toBeNull();
});

it("ends what is under way when the device is lost, and all that comes after", async () => {
  const { loss, lose } = device();
  const under = loss.race(new Promise(() => {}));
  lose("unplugged");
  const error = { kind: "device", fatal: true, message: "the device was lost: unplugged" };
  await expect(under).rejects.toMatchObject(error);
  await expect(loss.race(Promise.resolve(7))).rejects.toMatchObject(error);
  expect(() => loss.check()).toThrow("unplugged");
});

it("blames a loss that is told right after its effect", async () => {
  const { loss, lose } = device();
  const failing = loss.race(Promise.reject(new Error("a map was aborted")));
  setTimeout(() => lose("unplugged"), 1);
  await expect(failing).rejects.toThrow("unplugged");
});

it("tells those who listen, also after the event, and nobody else", async () => {
  const { loss, lose } = device();
  const told: string[] = [];
  loss.listen(() => told.push("early"));
  loss.listen(() => told.push("stopped"))();
  lose("");
  await expect.poll(() => told).toEqual(["early"]);
  loss.listen(({ message }) => told.push(message));
  expect(told).toEqual(["early", "the device was lost"]);
});

it("does not hold on to what came out of a race", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const { loss, lose } = device();
  const race = async () => new WeakRef(await loss.race(Promise.resolve(new Uint8Array(8))));
  const values = await Promise.all(Array.from({ length: 20 }, race));
  await expect
    .poll(() => {
      collect();
      return values.filter((value) => value.deref() !== undefined).length;
    })
    .toBe(0);
  lose("");
});
