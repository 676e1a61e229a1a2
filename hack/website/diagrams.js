// Draws a page's Mermaid diagrams in its colours; without mermaid.min.js, their text stays.
"use strict";

const folder = document.currentScript.src.replace(/[^/]*$/, "");

function prepare() {
    const blocks = [...document.querySelectorAll("div.highlight-mermaid")];
    if (!blocks.length) return;
    const script = document.createElement("script");
    script.src = `${folder}mermaid.min.js`;
    script.onload = () => start(blocks);
    document.head.append(script);
}

function start(blocks) {
    const diagrams = blocks.map((block) => {
        const text = block.querySelector("pre").textContent;
        const drawn = document.createElement("div");
        block.replaceWith(drawn);
        return { drawn, text };
    });
    const system = matchMedia("(prefers-color-scheme: dark)");
    const draw = () => {
        const chosen = document.body.dataset.theme;
        const dark = chosen === "dark" || (chosen !== "light" && system.matches);
        mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "neutral" });
        for (const { drawn, text } of diagrams) {
            drawn.textContent = text;
            drawn.removeAttribute("data-processed"); // or it would not be drawn a second time
        }
        return mermaid.run({ nodes: diagrams.map(({ drawn }) => drawn) });
    };
    let last = draw();
    const redraw = () => { last = last.then(draw, draw); };
    new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-theme"] });
    system.addEventListener("change", redraw);
}

addEventListener("DOMContentLoaded", prepare);
