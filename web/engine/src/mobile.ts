/* Whether a device is one that people carry. A module of its own, which pages load without an engine. */

/** Parts of `navigator` that tell, as far as this browser and thread have them. */
interface Told {
  userAgent: string;
  userAgentData?: { mobile: boolean };
  maxTouchPoints?: number;
}

export function isMobile({ userAgent, userAgentData, maxTouchPoints = 0 }: Told): boolean {
  // An iPad says that it is a Mac; no Mac can be touched.
  const isTablet = /Macintosh/.test(userAgent) && maxTouchPoints > 1;
  return userAgentData?.mobile ?? (isTablet || /Mobi|Android/i.test(userAgent));
}
