// A button with data-copies="id" puts the value of that field on the clipboard, and says so.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copies]");
  if (!button) return;
  const field = document.getElementById(button.dataset.copies);
  const said = document.getElementById(button.getAttribute("aria-describedby"));
  try {
    await navigator.clipboard.writeText(field.value);
    said.textContent = "Copied.";
  } catch {
    // No clipboard without HTTPS, or it was refused: marked, it is one key away.
    field.focus();
    field.select();
    said.textContent = "Press Ctrl+C or ⌘C to copy.";
  }
});
