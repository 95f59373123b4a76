/*
 * Counts the bytes of GPU buffers that are created in this worker from now on, whoever creates
 * them. Evaluated in the engine's worker over DevTools; nothing of Holdfast knows of it.
 */

(() => {
  const counts = { created: 0, there: 0 };
  self.gpuBuffers = counts;
  const sizes = new WeakMap();
  const letGo = (held) => {
    counts.there -= held.size;
    held.size = 0;
  };
  // A buffer that nobody refers to is gone as well.
  const collected = new FinalizationRegistry(letGo);

  const { createBuffer } = GPUDevice.prototype;
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const buffer = createBuffer.call(this, descriptor);
    const held = { size: descriptor.size };
    counts.created += held.size;
    counts.there += held.size;
    sizes.set(buffer, held);
    collected.register(buffer, held);
    return buffer;
  };

  const { destroy } = GPUBuffer.prototype;
  GPUBuffer.prototype.destroy = function () {
    const held = sizes.get(this);
    if (held) letGo(held);
    destroy.call(this);
  };
})();
