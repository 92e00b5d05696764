// Light or dark: Airflow's switch decides where Airflow serves the pages, the system everywhere else.
// Airflow keeps its switch in localStorage, under `theme`: light, dark or system.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const within = location.pathname.includes("/lockstep/docs/");
  const choice = () => {
    try { return within && localStorage.getItem("theme"); } catch { return null; }
  };
  const paint = () => {
    const chosen = choice();
    const dark = chosen === "dark" || (chosen !== "light" && system.matches);
    document.body.dataset.mdColorScheme = dark ? "slate" : "default";
    document.documentElement.style.colorScheme = dark ? "dark" : "light";
  };
  paint();
  system.addEventListener("change", paint);
  addEventListener("storage", paint);
  if (within) document.documentElement.classList.add("within-airflow");
})();
