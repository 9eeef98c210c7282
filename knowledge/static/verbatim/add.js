// Sends files one by one, with the bytes that have gone, and takes what is dropped on the form.
// Without it the form sends them all at once and the next page says the same.
(() => {
  const form = document.getElementById("add-form");
  const list = document.getElementById("added");
  const input = form.querySelector("input[type=file]");

  const row = (file) => {
    const item = document.createElement("li");
    item.className = "added";
    const name = document.createElement("p");
    const strong = document.createElement("strong");
    const isolated = document.createElement("bdi");
    isolated.textContent = file.name;
    strong.append(isolated);
    name.append(strong);
    const state = document.createElement("p");
    const progress = document.createElement("progress");
    progress.max = 1;
    progress.value = 0;
    progress.setAttribute("aria-label", "Sent");
    state.append(progress, " is being sent");
    item.append(name, state);
    list.prepend(item);
    return { item, progress, state };
  };

  const send = (file, fields) =>
    new Promise((done) => {
      const { item, progress, state } = row(file);
      const body = new FormData();
      fields.forEach(([name, value]) => body.append(name, value));
      body.append(input.name, file, file.name);
      const request = new XMLHttpRequest();
      request.upload.addEventListener("progress", (event) => {
        if (event.lengthComputable) progress.value = event.loaded / event.total;
      });
      const failed = (why) => {
        state.textContent = `Not added: ${why}`;
        state.className = "errornote";
        done();
      };
      request.addEventListener("error", () => failed("the connection broke. Add it again."));
      request.addEventListener("load", () => {
        if (request.status !== 200) {
          failed(`the server answered ${request.status}. Load this page again, then add the file.`);
          return;
        }
        const answer = document.createElement("template");
        answer.innerHTML = request.responseText;
        const settled = answer.content.firstElementChild;
        item.replaceWith(settled);
        htmx.process(settled);
        done();
      });
      request.open("POST", form.dataset.one);
      request.send(body);
    });

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const files = [...input.files];
    const fields = [...new FormData(form)].filter(([name]) => name !== input.name);
    fields.push(["count", String(files.length)]);
    form.reset();
    for (const file of files) await send(file, fields);
  });

  form.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("dragged");
  });
  form.addEventListener("dragleave", () => form.classList.remove("dragged"));
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    form.classList.remove("dragged");
    if (event.dataTransfer.files.length) input.files = event.dataTransfer.files;
  });
})();
