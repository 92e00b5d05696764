
"use strict";
// Fetches this page again every few seconds, and replaces the parts that have changed. It moves no focus: a part that
// has it stays. A screen reader hears the sentence of the runs alone, when the sentence changes.
const main = document.querySelector("main"), news = document.createElement("p");
news.className = "unseen";
news.setAttribute("role", "status");
let last = [];
const isBusy = (part) => document.activeElement !== main && part.contains(document.activeElement);
const update = async () => {
  const answer = await fetch(location.href).catch(() => null);
  if (!answer?.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const next = [...page.querySelector("main").children], live = page.getElementById("live");
  const text = live ? live.dataset.news : page.title;
  if (text !== news.textContent) news.textContent = text;
  document.title = page.title;
  if (next.length === last.length) {
    [...main.children].forEach((shown, i) => {
      if (shown.id === "live" || isBusy(shown) || last[i].isEqualNode(next[i])) return;
      shown.replaceWith(document.importNode(next[i], true));
      last[i] = next[i];
    });
  } else if (!isBusy(main)) {
    main.replaceChildren(...next.map((part) => document.importNode(part, true)));
    last = next;
  }
};
const wait = () => setTimeout(async () => {
  const live = document.querySelector("#live input");
  if (live?.checked && !document.hidden) await update();
  if (live) wait();
}, SECONDS);
document.addEventListener("DOMContentLoaded", () => {
  document.body.append(news);
  last = [...main.cloneNode(true).children];
  wait();
});
