// Polls while the page is visible.

/**
 * Calls `once` every `intervalMs`, one call at a time, and pauses while the tab is hidden.
 * @param {number} intervalMs
 * @param {(signal: AbortSignal) => Promise<void>} once Must not fail: it shows its own errors.
 * @returns {() => void} Stops polling.
 */
export function poll(intervalMs, once) {
  const ended = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isUnderWay = false;

  const turn = async () => {
    clearTimeout(timer);
    if (document.hidden || isUnderWay || ended.signal.aborted) return;
    const began = performance.now();
    isUnderWay = true;
    await once(ended.signal);
    isUnderWay = false;
    const left = intervalMs - (performance.now() - began);
    if (!ended.signal.aborted) timer = setTimeout(turn, Math.max(left, intervalMs / 4));
  };

  document.addEventListener("visibilitychange", turn, { signal: ended.signal });
  turn();
  return () => {
    clearTimeout(timer);
    ended.abort();
  };
}
