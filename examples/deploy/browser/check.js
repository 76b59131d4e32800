// Opens the page in a real Chromium, drops a picture and prints the answer; a screenshot is left behind. Any request that
// leaves this computer is a failure.

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const [address, picture] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking'],
});
try {
  const page = await browser.newPage({ viewport: { width: 800, height: 760 } });
  const elsewhere = [];
  const posted = [];
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !/^(data|blob):/.test(url)) elsewhere.push(url);
    if (request.method() !== 'GET') posted.push(url);
  });
  page.on('pageerror', (error) => console.error(`in the page: ${error.message}`));
  await page.goto(address);
  await page.getByText('Ready.').waitFor({ timeout: 120_000 });
  const bytes = readFileSync(picture).toString('base64');
  const transfer = await page.evaluateHandle((text) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], 'picture.png', { type: 'image/png' }));
    return data;
  }, bytes);
  await page.dispatchEvent('#drop', 'drop', { dataTransfer: transfer });
  const answer = page.locator('#answer', { hasText: /%|did not work/ });
  await answer.waitFor({ timeout: 120_000 });
  await page.screenshot({ path: here('screenshot.png') });
  if (elsewhere.length || posted.length) throw new Error(`the page spoke to others: ${[...elsewhere, ...posted]}`);
  console.log(await answer.textContent());
} finally {
  await browser.close();
}
