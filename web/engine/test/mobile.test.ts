/* Which devices are carried around, by what their browsers tell. */

import { expect, test } from "vitest";
import { isMobile } from "#engine/mobile";

const IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148 Safari/604.1";
const MAC = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/26.0 Safari/605.1.15";
const ANDROID = "Mozilla/5.0 (Android 15; Mobile; rv:153.0) Gecko/153.0 Firefox/153.0";
const LINUX = "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0";

test.each([
  ["a phone by Apple", { userAgent: IPHONE, maxTouchPoints: 5 }, true],
  ["a tablet by Apple, which says that it is a Mac", { userAgent: MAC, maxTouchPoints: 5 }, true],
  ["a Mac", { userAgent: MAC, maxTouchPoints: 0 }, false],
  ["a phone with Android", { userAgent: ANDROID }, true],
  ["a computer with a touch screen", { userAgent: LINUX, maxTouchPoints: 10 }, false],
  ["one that says so itself", { userAgent: LINUX, userAgentData: { mobile: true } }, true],
  ["one that denies it", { userAgent: ANDROID, userAgentData: { mobile: false } }, false],
])("%s", (_, told, expected) => {
  expect(isMobile(told)).toBe(expected);
});
