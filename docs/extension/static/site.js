/* What the theme leaves out for keyboards and screen readers. */
"use strict";

function scrollable() {
  for (const each of document.querySelectorAll("pre, .table-wrapper")) {
    if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
    else each.removeAttribute("tabindex");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const named = { ".sidebar-drawer": "Pages", ".toc-drawer": "This page" };
  for (const [selector, name] of Object.entries(named))
    document.querySelector(selector)?.setAttribute("aria-label", name);
  const buttons = document.querySelector(".content-icon-container");
  buttons?.setAttribute("role", "region");
  buttons?.setAttribute("aria-label", "Source and theme");
  for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = "2";
  scrollable();
  new ResizeObserver(scrollable).observe(document.body);
  document.addEventListener("change", scrollable); // another tab of a set
});
