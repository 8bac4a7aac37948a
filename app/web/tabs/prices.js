// What one GPU costs to rent on demand, in dollars an hour: as its provider's page had it on the day `read`, by public
// transcripts (tgarg01/silybench-data, datareceipts/data-receipts, api-evangelist/runpod and modal-labs). device: the
// end of its name in CUDA. No two cost the same. Pure: no DOM.
import { oneLine } from "../base/text.js";
import { dollarWords } from "./money.js";

const RUNPOD = "Runpod Secure Cloud, runpod.io/pricing", MODAL = "Modal without CPU and memory, modal.com/pricing";
export const PRICES = [
  { gpu: "H200", dollars: 4.59, source: RUNPOD, read: "2026-10-07", device: /H200$/ },
  { gpu: "H100 SXM", dollars: 3.99, source: RUNPOD, read: "2026-11-09", device: /H100 80GB HBM3$/ },
  { gpu: "H100 PCIe", dollars: 2.89, source: RUNPOD, read: "2026-11-09", device: /H100 PCIe$/ },
  { gpu: "A100 80 GB", dollars: 1.79, source: RUNPOD, read: "2026-11-09", device: /A100.80GB PCIe$|A100-SXM4-80GB$/ },
  { gpu: "L40S", dollars: 1.09, source: RUNPOD, read: "2026-09-25", device: /L40S$/ },
  { gpu: "L4", dollars: 0.8, source: MODAL, read: "2026-07-01", device: /L4$/ },
  { gpu: "RTX 4090", dollars: 0.74, source: RUNPOD, read: "2026-09-25", device: /RTX 4090$/ },
];

// The list to choose from, as [dollars, words]; the price of the race's own GPU comes first.
export const pricesFor = ({ name }) => PRICES.toSorted((a, b) => b.device.test(name) - a.device.test(name))
  .map(({ gpu, dollars, source, read }) =>
    [String(dollars), `${gpu}: ${dollarWords(dollars)} (${source.split(" ")[0]}, ${read})`]);

// Where the entered price is from, and of what the speeds are if that is another device; "" if it is not in the list.
export function priceWords(entered, { name }) {
  const { gpu, dollars, source, read, device } = PRICES.find((price) => price.dollars === entered) ?? {};
  return gpu ? `${gpu}: ${dollarWords(dollars)} an hour on demand (${source}, ${read}).${
    device.test(name) ? "" : ` The speeds are of another device: ${oneLine(name)}.`}` : "";
}
