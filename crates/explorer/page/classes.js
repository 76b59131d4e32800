// The classes with their scores, and which of them is explained.
import { $, changed, open, state } from "./app.js";
import { element, number, percent } from "./charts.js";

export function showClasses() {
  const row = ({ class: id, name, probability, score }) => {
    const share = probability ?? 0;
    const fill = element("span", { class: "bar", "aria-hidden": "true" });
    fill.style.width = `${100 * share}%`;
    const isChosen = state.class === id || (state.class === null && id === open.classes[0].class);
    const isRival = state.rival === id;
    const said = probability === null ? number(score) : percent(probability);
    return element(
      "li",
      { class: `${isChosen ? "chosen" : ""} ${isRival ? "rival" : ""}` },
      fill,
      element(
        "button",
        { type: "button", class: "name", "aria-pressed": String(isChosen), title: `${name}: score ${number(score)}`, onclick: () => chooseClass(id) },
        element("span", {}, name),
        element("span", {}, said),
      ),
      element(
        "button",
        { type: "button", class: "versus", "aria-pressed": String(isRival), "aria-label": `against ${name}`, disabled: isChosen, onclick: () => chooseRival(id) },
        "vs",
      ),
    );
  };
  const focused = document.activeElement?.closest("#classes li button");
  const place = focused && [...$("classes").querySelectorAll("button")].indexOf(focused);
  $("classes").replaceChildren(...open.classes.map(row));
  if (focused) $("classes").querySelectorAll("button")[place]?.focus();
}

function chooseClass(id) {
  state.class = id;
  if (state.rival === id) state.rival = null;
  showClasses();
  changed("question");
}

function chooseRival(id) {
  state.class ??= open.classes[0].class;
  state.rival = state.rival === id ? null : id;
  showClasses();
  changed("question");
}

export function showExplained() {
  const { name, probability, score } = open.explained;
  const said = probability === null || probability === undefined ? `score ${number(score)}` : percent(probability);
  $("explained").replaceChildren("Explained: ", element("strong", {}, name), ` (${said})`);
}
