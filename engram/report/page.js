for (const box of document.querySelectorAll(".memory")) {
  const slider = box.querySelector("input");
  const frames = [...box.querySelectorAll(".frame")];
  const show = () => {
    const at = Number(slider.value);
    frames.forEach((frame, index) => { frame.hidden = index !== at; });
    slider.setAttribute("aria-valuetext", frames[at].dataset.when);
    box.querySelector("output").textContent = frames[at].dataset.when;
  };
  slider.addEventListener("input", show);
  show();
}
