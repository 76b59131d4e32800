// The maps beside each other: one view (zoom, cursor) for all, drawn on canvases.

const LARGEST_ZOOM = 16;

/** Pixels as something that can be drawn. */
export function drawable(values, width, height, channels) {
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    for (let channel = 0; channel < 3; channel++) image.data[4 * at + channel] = values[channels * at + channel];
    image.data[4 * at + 3] = channels === 4 ? values[4 * at + 3] : 255;
  }
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The same in grey. */
export function greyed(rgb) {
  const grey = new Uint8Array(rgb.length);
  for (let at = 0; at < rgb.length; at += 3) {
    grey.fill(Math.round(0.299 * rgb[at] + 0.587 * rgb[at + 1] + 0.114 * rgb[at + 2]), at, at + 3);
  }
  return grey;
}

/** What all panels share. Positions are pixels of the picture as the network reads it. */
export class View {
  size = [1, 1];
  zoom = 1;
  /** The left upper corner that is seen. */
  corner = [0, 0];
  cursor = null;
  radius = 10;
  /** "look", or what the brush does. */
  tool = "look";
  opacity = 0.5;
  /** Points of the stroke that is being drawn. */
  stroke = null;

  zoomAt([x, y], factor) {
    const zoom = Math.min(LARGEST_ZOOM, Math.max(1, this.zoom * factor));
    this.corner = [x - ((x - this.corner[0]) * this.zoom) / zoom, y - ((y - this.corner[1]) * this.zoom) / zoom];
    this.zoom = zoom;
    this.#clamp();
  }

  pan(dx, dy) {
    this.corner = [this.corner[0] + dx, this.corner[1] + dy];
    this.#clamp();
  }

  reset() {
    this.zoom = 1;
    this.corner = [0, 0];
  }

  #clamp() {
    this.corner = this.corner.map((at, axis) => Math.min(Math.max(at, 0), this.size[axis] * (1 - 1 / this.zoom)));
  }
}

/** The part of the picture under a map's cell, and what the cell depends on: `[left, top, right, bottom]`. */
export function regions(map, [width, height], [x, y]) {
  const [rows, columns] = map.shape;
  const column = Math.min(columns - 1, Math.floor((x / width) * columns));
  const row = Math.min(rows - 1, Math.floor((y / height) * rows));
  const cell = [
    Math.floor((column * width) / columns),
    Math.floor((row * height) / rows),
    Math.ceil(((column + 1) * width) / columns),
    Math.ceil(((row + 1) * height) / rows),
  ];
  let field = null;
  if (map.field) {
    const [[strideY, beforeY, afterY], [strideX, beforeX, afterX]] = map.field;
    field = [
      Math.max(0, column * strideX - beforeX),
      Math.max(0, row * strideY - beforeY),
      Math.min(width, column * strideX + afterX + 1),
      Math.min(height, row * strideY + afterY + 1),
    ];
  }
  return { row, column, cell, field };
}

/** One canvas. */
export class Panel {
  constructor(canvas, view, on) {
    this.canvas = canvas;
    this.view = view;
    this.on = on;
    this.map = null;
    this.base = null;
    this.layer = null;
    this.#listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** What is drawn: the picture below, the colours of a map above it. */
  show(base, colours, map) {
    this.base = base;
    this.layer = colours;
    this.map = map;
    this.draw();
  }

  draw() {
    const { canvas, view } = this;
    const [width, height] = view.size;
    const shown = canvas.clientWidth * (globalThis.devicePixelRatio || 1);
    if (!this.base || !shown) return;
    canvas.style.aspectRatio = `${width} / ${height}`;
    const side = Math.round(shown);
    if (canvas.width !== side || canvas.height !== Math.round((side * height) / width)) {
      canvas.width = side;
      canvas.height = Math.round((side * height) / width);
    }
    const scale = (side / width) * view.zoom;
    const ink = canvas.getContext("2d");
    ink.setTransform(scale, 0, 0, scale, -view.corner[0] * scale, -view.corner[1] * scale);
    ink.imageSmoothingEnabled = scale < 6;
    ink.imageSmoothingQuality = "high";
    ink.globalAlpha = 1;
    ink.drawImage(this.base, 0, 0, width, height);
    if (this.layer) {
      ink.globalAlpha = view.opacity;
      ink.drawImage(this.layer, 0, 0, width, height);
      ink.globalAlpha = 1;
    }
    this.#overlay(ink, scale);
  }

  #overlay(ink, scale) {
    const { view } = this;
    const pixel = (globalThis.devicePixelRatio || 1) / scale;
    if (view.stroke) {
      ink.strokeStyle = "rgb(128 128 128 / 0.75)";
      ink.lineWidth = 2 * view.radius;
      ink.lineCap = ink.lineJoin = "round";
      ink.beginPath();
      const [x, y, ...rest] = view.stroke;
      ink.moveTo(x, y);
      ink.lineTo(x + 0.01, y);
      for (let at = 0; at < rest.length; at += 2) ink.lineTo(rest[at], rest[at + 1]);
      ink.stroke();
    }
    if (!view.cursor) return;
    const [x, y] = view.cursor;
    if (view.tool !== "look") {
      this.#outline(ink, pixel, () => ink.arc(x, y, view.radius, 0, 2 * Math.PI));
      return;
    }
    const pointed = view.pointed;
    if (pointed?.field) {
      const [left, top, right, bottom] = pointed.field;
      this.#outline(ink, pixel, () => ink.rect(left, top, right - left, bottom - top), [6, 4]);
    }
    if (pointed) {
      const [left, top, right, bottom] = pointed.cell;
      this.#outline(ink, pixel, () => ink.rect(left, top, right - left, bottom - top));
    }
    const arm = 7 * pixel;
    this.#outline(ink, pixel, () => {
      ink.moveTo(x - arm, y);
      ink.lineTo(x + arm, y);
      ink.moveTo(x, y - arm);
      ink.lineTo(x, y + arm);
    });
  }

  /** A line that is seen on light and on dark. */
  #outline(ink, pixel, path, dashes = []) {
    ink.setLineDash(dashes.map((length) => length * pixel));
    for (const [colour, width] of [["rgb(0 0 0 / 0.65)", 3.2], ["#fff", 1.4]]) {
      ink.beginPath();
      path();
      ink.strokeStyle = colour;
      ink.lineWidth = width * pixel;
      ink.stroke();
    }
    ink.setLineDash([]);
  }

  #position(event) {
    const box = this.canvas.getBoundingClientRect();
    const [width, height] = this.view.size;
    const at = (offset, length, extent, corner) =>
      Math.min(extent - 0.001, Math.max(0, corner + ((offset / length) * extent) / this.view.zoom));
    return [
      at(event.clientX - box.left, box.width, width, this.view.corner[0]),
      at(event.clientY - box.top, box.height, height, this.view.corner[1]),
    ];
  }

  #listen() {
    const { canvas, view, on } = this;
    const pointers = new Map();
    let pinch = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, event);
      if (pointers.size === 2) {
        const [a, b] = [...pointers.values()];
        pinch = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        view.stroke = null;
      } else if (view.tool !== "look") {
        view.stroke = this.#position(event);
      }
      on.cursor(this, this.#position(event));
    });
    canvas.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (before) pointers.set(event.pointerId, event);
      if (pointers.size === 2 && pinch) {
        const [a, b] = [...pointers.values()];
        const apart = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        view.zoomAt(this.#position(event), apart / pinch);
        pinch = apart;
      } else if (before && view.stroke) {
        view.stroke.push(...this.#position(event));
      } else if (before && view.zoom > 1) {
        const shown = canvas.clientWidth * view.zoom;
        const [dx, dy] = [before.clientX - event.clientX, before.clientY - event.clientY];
        view.pan((dx * view.size[0]) / shown, (dy * view.size[0]) / shown);
      }
      on.cursor(this, this.#position(event));
    });
    const up = (event) => {
      pointers.delete(event.pointerId);
      if (pointers.size < 2) pinch = null;
      const { stroke } = view;
      view.stroke = null;
      if (stroke && event.type === "pointerup") on.stroke(stroke);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => {
      if (!view.stroke && document.activeElement !== canvas) on.cursor(this, null);
    });
    canvas.addEventListener(
      "wheel",
      (event) => {
        // Without a key the page scrolls, as everywhere.
        if (!event.ctrlKey && !event.metaKey) return;
        event.preventDefault();
        view.zoomAt(this.#position(event), Math.exp(-event.deltaY / 200));
        on.view();
      },
      { passive: false },
    );
    canvas.addEventListener("dblclick", () => {
      view.reset();
      on.view();
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => on.cursor(this, view.cursor ?? view.size.map((length) => length / 2)));
    canvas.addEventListener("blur", () => on.cursor(this, null));
  }

  #key(event) {
    const { view, on } = this;
    const [x, y] = view.cursor ?? view.size.map((length) => length / 2);
    const [rows, columns] = this.map?.shape ?? [32, 32];
    // A step is a cell of the map; with shift a pixel.
    const step = event.shiftKey ? [1, 1] : [view.size[0] / columns, view.size[1] / rows];
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const inside = (at, axis) => Math.min(view.size[axis] - 0.5, Math.max(0.5, at));
    if (moves[event.key]) {
      const [dx, dy] = moves[event.key];
      on.cursor(this, [inside(x + dx * step[0], 0), inside(y + dy * step[1], 1)]);
    } else if (event.key === "+" || event.key === "=") {
      view.zoomAt([x, y], 1.5);
      on.view();
    } else if (event.key === "-") {
      view.zoomAt([x, y], 1 / 1.5);
      on.view();
    } else if (event.key === "0") {
      view.reset();
      on.view();
    } else if ((event.key === " " || event.key === "Enter") && view.tool !== "look") {
      on.stroke([x, y]);
    } else {
      return;
    }
    event.preventDefault();
  }
}
